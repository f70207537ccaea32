"""Passes of the controller against a live API: what is written, what is not, and who puts it back."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config
from nodeagent.coredns.controller import CoreDnsReporter
from nodeagent.coredns.coredns_reconciler import (
    CoreDnsConfigMap,
    CoreDnsPass,
    CoreDnsReconciler,
    clean_up,
    read,
    write,
)
from nodeagent.coredns.editing import Edit
from nodeagent.coredns.managed_block import with_blocks
from nodeagent.errors import ApplyError, ConfigError, SourceError
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.event_recorder import EventRecorder, PendingEvent
from nodeagent.plan.balancers.capacity import allocate
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import ApiServer, Rule, faults, objects
from tests.clock import Clock
from tests.coredns import corpus
from tests.coredns.cluster import ADDRESS, CONFIG, add_name, config_map, corefile, fill, put
from tests.coredns.real import answer_of
from tests.coredns.resolving import NO_RECORDS, PASSED_ON, model_answer
from tests.plan.made_up import service
from tests.testbed.waiting import wait_until


class Kept:
    """A reconciler and its cluster."""

    def __init__(self, api: ApiServer, connection: Connection) -> None:
        self.api = api
        self.clock = Clock()
        self._connection = connection
        self._reconciler = CoreDnsReconciler(connection, ApiServers(), clock=self.clock)

    def reconcile(
        self, dns: Mapping[str, DnsAnswer] = MappingProxyType({}), config: Config = CONFIG
    ) -> CoreDnsPass:
        return self._reconciler.reconcile(read_cluster(self._connection, "n1"), dns, config)

    def clean_up(self) -> None:
        clean_up(self._connection, CONFIG, str)

    def versions(self) -> str:
        """The number of the ConfigMap's last write."""
        version: str = config_map(self.api)["metadata"]["resourceVersion"]
        return version


@pytest.fixture
def reconciler(api: ApiServer, connecting: Callable[[], Connection]) -> Kept:
    fill(api)
    return Kept(api, connecting())


def test_names_are_written_once_and_followed(api: ApiServer, reconciler: Kept) -> None:
    done = reconciler.reconcile()
    assert done.written == ("kube-system/coredns",)
    relay = model_answer(corefile(api), "app.example.com")
    assert relay.startswith("169.254.66.")
    assert model_answer(corefile(api), "app.example.com", "AAAA") == NO_RECORDS
    version = reconciler.versions()
    assert reconciler.reconcile().written == ()
    assert reconciler.versions() == version
    add_name(api, "new.example.com")
    reconciler.reconcile()
    assert model_answer(corefile(api), "new.example.com") == relay
    api.store.delete("ingresses", "new", "default")
    reconciler.reconcile()
    assert model_answer(corefile(api), "new.example.com") == PASSED_ON


_PLAIN = ".:53 {\n    errors\n    template IN ANY . {\n        rcode NXDOMAIN\n    }\n    reload\n}\n"
"""A Corefile that a CoreDNS outside of a cluster can serve."""


def test_a_block_of_other_relay_ranges_is_kept_until_a_person_decides(
    reconciler: Kept, tmp_path: Path
) -> None:
    """Also by a controller that was started again: pods would be led to addresses that no node has."""
    put(reconciler.api, {"Corefile": _PLAIN})
    reconciler.reconcile()
    before = corefile(reconciler.api)
    ranges = parse_config("relay: {ipv4: 169.254.77.0/24, ipv6: 'fd77::/112'}", "nodeagent.yaml").relay
    moved = msgspec.structs.replace(CONFIG, relay=ranges)
    with pytest.raises(ConfigError, match=r"such as 169\.254\.66\.\d+(?s:.*)nodeagent coredns cleanup"):
        reconciler.reconcile(config=moved)
    assert corefile(reconciler.api) == before
    assert answer_of(before, "app.example.com", tmp_path).startswith("169.254.66.")
    reconciler.clean_up()
    reconciler.reconcile(config=moved)
    assert answer_of(corefile(reconciler.api), "app.example.com", tmp_path).startswith("169.254.77.")


def test_a_load_balancer_that_publishes_only_a_hostname_is_served_by_coredns_too(
    api: ApiServer, reconciler: Kept
) -> None:
    """At the relay address that every node computes, while DNS answers for both as the agents hear it."""
    own, name = "lb-1.elb.example.org", "app.example.com"
    published = {"status": {"loadBalancer": {"ingress": [{"hostname": own}]}}}
    api.store.patch("services", "controller", "ingress", published)
    api.store.patch("ingresses", "site", "default", published)
    listed = [{"namespace": "ingress", "name": "controller", "hostnameOnly": True}]
    config = parse_config(json.dumps({"loadBalancers": {"services": listed}}), "nodeagent.yaml")
    reply = DnsReply(DnsOutcome.ADDRESSES, (ip_address("203.0.113.77"),))
    known = {each: DnsAnswer(reply, reply) for each in (own, name)}
    done = reconciler.reconcile(known, config)
    assert done.desired.questions.keys() == {own, name}
    assert model_answer(corefile(api), name).startswith("169.254.66.")
    moved = DnsReply(DnsOutcome.ADDRESSES, (ip_address("198.51.100.99"),))
    reconciler.reconcile({**known, name: DnsAnswer(moved, moved)}, config)
    assert model_answer(corefile(api), name) == PASSED_ON


def test_an_older_load_balancer_that_takes_a_relay_address_gets_no_hostname_that_is_answered_there(
    api: ApiServer, reconciler: Kept
) -> None:
    text = "hosts: {verify: allow, allow: [example.com]}\nrelay: {ipv4: 169.254.66.0/29}"
    options, own = parse_config(text, "nodeagent.yaml"), {"nodeagent.io/proxy-protocol": "v2"}
    (taken,) = allocate([service("later", namespace="ingress")], options.relay.ipv4).values()
    older = (service(f"t{number}", namespace="a-tenant") for number in range(99))
    name = next(each.ref.name for each in older if taken in allocate([each], options.relay.ipv4).values())
    theirs = objects.load_balancer(name, "a-tenant", addresses=["203.0.113.66"], annotations=own)
    api.store.create(objects.service(name, "a-tenant"))
    api.store.create(objects.load_balancer("later", "ingress", addresses=["203.0.113.11"], annotations=own))
    api.store.apply(objects.ingress("site", hosts=["app.example.com"], addresses=["203.0.113.11"]))
    reconciler.reconcile(config=options)
    assert model_answer(corefile(api), "app.example.com") == str(taken)
    api.store.apply(theirs)
    api.store.create(objects.ingress("a", "a-tenant", hosts=["app.example.com"], addresses=["203.0.113.66"]))
    held = {
        each.address: each.load_balancer for each in reconciler.reconcile(config=options).desired.addresses
    }
    assert held[taken].namespace == "a-tenant"
    answered = ip_address(model_answer(corefile(api), "app.example.com"))
    assert held[answered].namespace == "ingress"


def test_a_wildcard_that_is_rejected_is_reported_once_as_an_event(
    reconciler: Kept, connecting: Callable[[], Connection]
) -> None:
    """On the Service, by CoreDNS alone: the agents don't cover wildcards anyway."""
    add_name(reconciler.api, "*.example.net")
    recorder = EventRecorder(connecting(), "one")
    recorder.start()
    reporter = CoreDnsReporter(recorder)
    reporter.report(reconciler.reconcile())
    reporter.report(reconciler.reconcile())
    wait_until(lambda: bool(reconciler.api.store.all("events")), "the Event")
    (event,) = reconciler.api.store.all("events")
    assert (event["involvedObject"]["kind"], event["reason"]) == ("Service", "NameWildcardNotAllowed")
    assert event["message"].startswith("*.example.net (Ingress default/any): not answered: ")


def test_a_write_of_another_program_in_between_is_not_undone(api: ApiServer, reconciler: Kept) -> None:
    """The last moment before the write: the compare-and-swap is what holds then."""
    held = faults.Hold()
    armed = api.faults.add(held, path="*/configmaps/coredns", verbs={"update"})
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(reconciler.reconcile)
        held.wait_until_held()
        put(api, {"Corefile": corpus.corefile("minikube")})
        api.faults.remove(armed)
    assert "409" in writing.result().errors["kube-system/coredns"]
    assert corefile(api) == corpus.corefile("minikube")
    assert reconciler.reconcile().written == ("kube-system/coredns",)
    assert "host.minikube.internal" in corefile(api)


@pytest.mark.parametrize(("mode", "moving_to"), [("auto", "coredns-custom"), ("corefile", "coredns")])
def test_a_block_that_moves_stays_where_it_is_until_it_is_written_there(
    api: ApiServer, reconciler: Kept, mode: str, moving_to: str
) -> None:
    put(api, {"Corefile": corpus.corefile("k3s")})
    if moving_to == "coredns":
        put(api, {}, "coredns-custom")
    reconciler.reconcile()
    if moving_to == "coredns-custom":
        put(api, {}, "coredns-custom")
    options = msgspec.convert({"mode": mode}, type(CONFIG.coredns))
    config = msgspec.structs.replace(CONFIG, coredns=options)

    def with_a_block() -> list[str]:
        maps = {name: config_map(api, name).get("data") or {} for name in ("coredns", "coredns-custom")}
        return [name for name, data in maps.items() if "# BEGIN nodeagent" in "".join(data.values())]

    (before,) = with_a_block()
    api.faults.add(faults.Answer(403), path=f"*/configmaps/{moving_to}", verbs={"update"}, times=1)
    done = reconciler.reconcile(config=config)
    assert done.errors.keys() == {f"kube-system/{moving_to}"}
    assert with_a_block() == [before]
    assert set(reconciler.reconcile(config=config).written) == {
        f"kube-system/{before}",
        f"kube-system/{moving_to}",
    }
    assert with_a_block() == [moving_to]


def test_drift_is_repaired_and_an_owner_that_insists_is_reported_rather_than_fought(
    api: ApiServer, reconciler: Kept
) -> None:
    reconciler.reconcile()
    conflicts: list[PendingEvent] = []
    for _ in range(3):
        put(api, {"Corefile": corpus.corefile("kubeadm")}, manager="helm-controller")
        done = reconciler.reconcile()
        assert done.written
        conflicts += done.conflicts
        reconciler.clock.pass_by(300)
    (conflict,) = conflicts
    assert conflict.code == "CorefilePutBack"
    assert all(word in conflict.message for word in ("'helm-controller'", "kube-system/coredns", " 60 s "))

    put(api, {"Corefile": corpus.corefile("kubeadm")}, manager="helm-controller")
    reconciler.clock.pass_by(-290)
    done = reconciler.reconcile()
    assert (done.written, [edit.key for edit in done.edits.pending]) == ((), ["Corefile"])
    assert corefile(api) == corpus.corefile("kubeadm")
    reconciler.clock.pass_by(60)
    assert reconciler.reconcile().written


def test_an_owner_that_puts_it_back_more_rarely_than_three_times_an_hour_is_repaired_at_once(
    api: ApiServer, reconciler: Kept
) -> None:
    reconciler.reconcile()
    for _ in range(4):
        reconciler.clock.pass_by(1801)
        put(api, {"Corefile": corpus.corefile("kubeadm")}, manager="helm-controller")
        done = reconciler.reconcile()
        assert (done.written, done.conflicts) == (("kube-system/coredns",), ())


def test_own_changes_are_not_a_conflict(reconciler: Kept) -> None:
    for number in range(10):
        add_name(reconciler.api, f"site-{number}.example.com")
        done = reconciler.reconcile()
        assert done.written
        assert not done.conflicts
        reconciler.clock.pass_by(2)


@pytest.mark.parametrize(
    ("fault", "why"), [(faults.Answer(503), "503"), (faults.Disconnect(), "check that the server is up")]
)
def test_with_the_api_in_trouble_nothing_changes(
    reconciler: Kept, fault: faults.RequestFault, why: str
) -> None:
    reconciler.api.faults.add(fault, path="*/configmaps/*", verbs={"get"}, times=None)
    with pytest.raises(SourceError, match=why):
        reconciler.reconcile()
    assert corefile(reconciler.api) == corpus.corefile("kubeadm")


def test_without_the_config_map_the_error_says_where_to_look(reconciler: Kept) -> None:
    reconciler.api.store.delete("configmaps", "coredns", "kube-system")
    with pytest.raises(SourceError, match=r"kube-system/coredns: no such ConfigMap; .* coredns\.configMap"):
        reconciler.reconcile()


@pytest.mark.parametrize(
    ("pod_cidrs", "answer"),
    [(("10.0.0.0/24",), NO_RECORDS), (("10.0.0.0/24", "fd00::/64"), "fd68:6169:7270:")],
)
def test_a_family_that_the_cluster_does_not_speak_is_not_answered(
    api: ApiServer, reconciler: Kept, pod_cidrs: tuple[str, ...], answer: str
) -> None:
    addresses = ["203.0.113.10", "2001:db8::10"]
    api.store.apply(objects.load_balancer("controller", "ingress", addresses=addresses, annotations={}))
    api.store.create(objects.node("n1", pod_cidrs=pod_cidrs))
    reconciler.reconcile()
    assert model_answer(corefile(api), "app.example.com").startswith("169.254.66.")
    assert model_answer(corefile(api), "app.example.com", "AAAA").startswith(answer)


def test_at_a_nodes_addresses_dns_verifies_nothing_for_coredns_either(
    api: ApiServer, reconciler: Kept, tmp_path: Path
) -> None:
    """As k3s' ServiceLB publishes them: each node's own hostname resolves to one."""
    node = objects.node("n1")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": ADDRESS}]
    api.store.create(node)
    put(api, {"Corefile": _PLAIN})
    reply = DnsReply(DnsOutcome.ADDRESSES, (ip_address(ADDRESS),))
    config = parse_config("loadBalancers: {services: [{namespace: ingress, name: controller}]}", "")
    done = reconciler.reconcile({"app.example.com": DnsAnswer(reply, reply)}, config)
    assert [each.code for each in done.desired.names] == ["ResolvesToNode"]
    assert done.written == ()
    assert not answer_of(corefile(api), "app.example.com", tmp_path).startswith("169.254.66.")


_USER = corpus.corefile("kubeadm")
_EDITED = with_blocks(_USER, ["log"])


@pytest.fixture
def connection(api: ApiServer, connecting: Callable[[], Connection]) -> Connection:
    made = objects.config_map("coredns", "kube-system", {"Corefile": _USER, "other": "x\r\n"})
    made["metadata"] |= {"labels": {"eks.amazonaws.com/component": "coredns"}, "annotations": {"a": "b"}}
    made["immutable"] = False
    api.store.create(made)
    return connecting()


def as_read(connection: Connection) -> CoreDnsConfigMap:
    found = read(connection, "kube-system", "coredns")
    assert found is not None
    return found


def test_all_else_of_the_object_stays(api: ApiServer, connection: Connection) -> None:
    before = config_map(api)
    write(connection, as_read(connection), [Edit("kube-system/coredns", "Corefile", None, _EDITED)])
    after = config_map(api)
    assert after["data"] == {"Corefile": _EDITED, "other": "x\r\n"}
    for gone in (before, after):
        del gone["data"], gone["metadata"]["resourceVersion"]
    assert after == before


def test_a_config_map_beyond_the_limit_is_refused_with_its_size(
    api: ApiServer, connection: Connection
) -> None:
    large = with_blocks(_USER, ["# é" + "x" * (1 << 20)])
    with pytest.raises(ApplyError, match=r"kube-system/coredns would have 1,04\d,\d{3} bytes, .* 1,048,576"):
        write(connection, as_read(connection), [Edit("kube-system/coredns", "Corefile", None, large)])
    assert config_map(api)["data"]["Corefile"] == _USER


def test_a_missing_right_is_reported_as_the_rule_to_grant(api: ApiServer, connection: Connection) -> None:
    found = as_read(connection)
    api.access.allow_only([Rule([""], ["configmaps"], ["get"], ["coredns"], "kube-system")])
    with pytest.raises(ForbiddenError, match=r'a Role in namespace kube-system: .*verbs: \["update"\]'):
        write(connection, found, [Edit("kube-system/coredns", "Corefile", None, _EDITED)])


def test_who_wrote_it_last() -> None:
    entries = [
        {"manager": "helm", "time": "2026-01-01T00:00:00Z"},
        {"manager": "kustomize-controller", "time": "2026-01-03T00:00:00Z"},
        {"manager": "nodeagent", "time": "2026-01-04T00:00:00Z"},
    ]
    assert (
        CoreDnsConfigMap(
            ObjectRef("ConfigMap", "a", "b"), {"metadata": {"managedFields": entries}}
        ).last_writer
        == "kustomize-controller"
    )
    assert CoreDnsConfigMap(ObjectRef("ConfigMap", "a", "b"), {"metadata": {}}).last_writer == ""
