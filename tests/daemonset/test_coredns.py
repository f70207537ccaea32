"""The component for CoreDNS: it adds to the base what it needs, and no right that it could do without."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nodeagent.config.options import Config, CoreDnsOptions
from nodeagent.config.reading import parse_config
from nodeagent.coredns.coredns_reconciler import CoreDnsReconciler
from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.event_recorder import PendingEvent, post_event
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import ApiServer
from tests.apiserver.access import Rule, rules_bound_to
from tests.apiserver.wire import Peer, request
from tests.coredns import cluster, corpus
from tests.daemonset.kustomize import Object
from tests.daemonset.manifests import DEPLOYMENTS, configuration, deployed, the, workload

NAME = "nodeagent-coredns"


@pytest.fixture
def objects() -> list[Object]:
    return deployed("../coredns")


def _rules(objects: list[Object]) -> list[Rule]:
    return rules_bound_to(objects, "nodeagent", NAME)


def test_it_only_adds_to_the_base(objects: list[Object]) -> None:
    base = deployed()
    assert objects[: len(base)] == base
    assert {one["metadata"]["name"] for one in objects[len(base) :]} == {NAME, f"{NAME}-config"}


def test_one_replica_which_another_node_starts_soon(objects: list[Object]) -> None:
    deployment = the(objects, "Deployment", NAME)
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    spec = workload(objects, NAME).spec
    tolerated = {one["key"]: one["tolerationSeconds"] for one in spec["tolerations"]}
    assert tolerated == {f"node.kubernetes.io/{state}": 30 for state in ("unreachable", "not-ready")}
    assert spec["dnsPolicy"] == "Default", "CoreDNS knows nodeagent's own lines"


def test_the_names_in_the_role_are_those_of_the_configuration(objects: list[Object]) -> None:
    options: CoreDnsOptions = parse_config(configuration(objects), "base").coredns
    (rule,) = [rule for rule in _rules(objects) if "configmaps" in rule.resources]
    named = {options.config_map, options.import_config_map, options.node_local_config_map}
    assert (rule.namespace, set(rule.resource_names)) == (options.namespace, named)
    assert options == Config().coredns


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_it_may_read_whatever_the_agents_beside_it_read(deployment: str) -> None:
    # One overlay brings it itself.
    objects = deployed(deployment, *(["../coredns"] if deployment != "overlays/cilium" else []))
    reading = [rule for rule in rules_bound_to(objects, "nodeagent", "nodeagent") if "watch" in rule.verbs]
    assert reading
    assert [rule for rule in reading if rule not in _rules(objects)] == []


def test_the_overlay_cilium_is_the_base_with_the_component(objects: list[Object]) -> None:
    """With all of its rights, and a configuration that says so."""
    found = deployed("overlays/cilium")
    assert [one for one in found if one not in objects] == [the(found, "ConfigMap")]
    assert [one for one in objects if one not in found] == [the(objects, "ConfigMap")]
    config, without = (parse_config(configuration(each), "cilium") for each in (found, objects))
    assert (config.coredns.serves_pods, config.dnat.backend) == (True, "none")
    assert msgspec.structs.replace(config, coredns=without.coredns, dnat=without.dnat) == without


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    cluster.fill(api)
    return api


def suffices(api: ApiServer, folder: Path, rules: list[Rule]) -> bool:
    """Whether everything goes well under these rules that the controller does beyond what the agents do."""
    with connect(api.write_kubeconfig(folder / "kubeconfig")) as connection:
        snapshot = read_cluster(connection, "n1")
        api.access.allow_only(rules)
        try:
            done = CoreDnsReconciler(connection, ApiServers()).reconcile(snapshot, {}, cluster.CONFIG)
        except SourceError:
            return False
        corefile = ObjectRef("ConfigMap", "kube-system", "coredns")
        return not done.errors and not post_event(connection, PendingEvent(corefile, "CorefilePutBack", "x"))


def test_the_rights_suffice(api: ApiServer, objects: list[Object], tmp_path: Path) -> None:
    for name in ("coredns-custom", "node-local-dns"):
        cluster.put(api, {"Corefile": ".:53 {\n    reload\n}\n"}, name)
    assert suffices(api, tmp_path, _rules(objects))


def test_no_right_of_its_own_can_be_done_without(objects: list[Object], tmp_path: Path) -> None:
    tried = 0
    agents = rules_bound_to(objects, "nodeagent", "nodeagent")
    for number, own in enumerate(_rules(objects)):
        for verb in own.verbs if own not in agents else ():
            rules = _rules(objects)
            rules[number] = replace(own, verbs=[one for one in own.verbs if one != verb])
            with ApiServer() as api:
                cluster.fill(api)
                assert not suffices(api, tmp_path, rules), f"{verb} of {own.resources} is too much"
            tried += 1
    assert tried == 2


def test_by_import_it_writes_its_own_config_map_and_no_other(api: ApiServer, tmp_path: Path) -> None:
    narrowed = _rules(deployed("base", "../coredns", "../coredns/import"))
    cluster.put(api, {"Corefile": corpus.corefile("k3s")})
    cluster.put(api, {"log.override": "log\n"}, "coredns-custom")
    config = msgspec.structs.replace(
        cluster.CONFIG, coredns=msgspec.structs.replace(cluster.CONFIG.coredns, mode="import")
    )
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        snapshot = read_cluster(connection, "n1")
        api.access.allow_only(narrowed)
        reconciler = CoreDnsReconciler(connection, ApiServers())
        assert reconciler.reconcile(snapshot, {}, config).errors == {}
    assert "app[.]example[.]com" in cluster.config_map(api, "coredns-custom")["data"]["nodeagent.override"]
    assert cluster.corefile(api) == corpus.corefile("k3s")
    for name in ("coredns", "node-local-dns"):
        path = f"/api/v1/namespaces/kube-system/configmaps/{name}"
        assert request(Peer(api.port), "PUT", path, {"metadata": {"name": name}})[0] == 403
