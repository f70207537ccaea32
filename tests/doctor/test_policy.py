"""`nodeagent doctor --policy`: what the printed policy does to recorded Services, and where there is none."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import pytest
from celpy import celtypes
from celpy.adapter import json_to_cel

from nodeagent.config.options import LoadBalancerOptions
from nodeagent.doctor.examination import identities
from nodeagent.doctor.load_balancer_findings import Target, policy_targets, policy_text
from nodeagent.errors import SourceError
from nodeagent.model.decisions import served
from nodeagent.model.objects import Snapshot
from nodeagent.plan.identity.identify import Identity, identify
from nodeagent.plan.identity.ways_out import ways_out
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers, ask_cluster
from nodeagent.sources.manifests import read_manifests
from tests.apiserver import ApiServer, Resource, faults, objects
from tests.cases import cases_of
from tests.cli.command_line import Ask
from tests.daemonset.kubernetes_schemas import validate
from tests.daemonset.kustomize import documents
from tests.plan.made_up import config, point, service
from tests.situations.situation import SITUATIONS, situations

Object = dict[str, Any]


class JSONPatch(celtypes.MessageType):
    """The type that a policy's expression makes."""


@cache
def _environment() -> celpy.Environment:
    """Building its parser takes half a second."""
    return celpy.Environment(annotations={"JSONPatch": JSONPatch})


@cache
def _program(expression: str) -> celpy.Runner:
    """Two of a policy's three expressions are the same in each, and compiling one takes a while."""
    return _environment().program(_environment().compile(expression))


class Policy:
    """A policy and its binding, as `kubectl apply` takes them."""

    def __init__(self, text: str) -> None:
        self.policy, self.binding = documents(text)
        assert self.binding["spec"]["policyName"] == self.policy["metadata"]["name"]
        spec = self.policy["spec"]
        self._conditions = [_program(one["expression"]) for one in spec["matchConditions"]]
        self._patches = [_program(one["jsonPatch"]["expression"]) for one in spec["mutations"]]

    def admit(self, obj: Object, resource: str = "services/status") -> Object:
        """Return the object as it is stored when it is written to `resource`, as an update."""
        assert self.policy["spec"]["failurePolicy"] == "Ignore"
        rules = self.policy["spec"]["matchConstraints"]["resourceRules"]
        if not any(resource in rule["resources"] and "UPDATE" in rule["operations"] for rule in rules):
            return obj
        result = deepcopy(obj)
        variables = {"object": json_to_cel(obj)}
        if not all(bool(condition.evaluate(variables)) for condition in self._conditions):
            return result
        for patch in self._patches:
            operations: Any = patch.evaluate({"object": json_to_cel(result)})
            for operation in operations:
                _apply(result, {str(key): str(value) for key, value in operation.items()})
        return result


def _apply(document: Object, operation: Mapping[str, str]) -> None:
    """One operation of a JSON patch; `add` to an object replaces what is there (RFC 6902, 4.1)."""
    assert operation["op"] == "add", operation
    *parents, last = operation["path"].removeprefix("/").split("/")
    target: Any = document
    for step in parents:
        target = target[int(step)] if isinstance(target, list) else target[step]
    target[last] = operation["value"]


V1 = ClusterAnswers(version="v1.36.0", policy_api="v1")
_DIGITALOCEAN = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
_RECORDED = [path.name for path in situations() if list(path.glob("manifests/*.yaml"))]
_GROUP = "admissionregistration.k8s.io"
_POLICIES = "mutatingadmissionpolicies"


def _target(annotations: dict[str, str] | None = None, reason: str = "said so") -> Target:
    found = annotations or {}
    return service(annotations=found), Identity(served("Annotated", reason), annotations=found, proxy=True)


def _raw(status: list[dict[str, str]], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ingress", "name": "blue"}
        | ({"annotations": annotations} if annotations is not None else {}),
        "status": {"loadBalancer": {"ingress": status}},
    }


def _entries(obj: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = obj["status"]["loadBalancer"]["ingress"]
    return found


@cache
def _recorded(name: str) -> tuple[Target, ...]:
    snapshot = read_manifests(SITUATIONS / name / "manifests", "node1")
    return policy_targets(snapshot.services, identities(snapshot, LoadBalancerOptions()))


def _services(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.rglob("*.yaml")):
        for document in documents(path.read_text("utf-8")):
            for obj in document.get("items", [document]):
                if obj["kind"] == "Service":
                    yield obj


@pytest.mark.parametrize("name", _RECORDED)
def test_recorded_statuses_of_exactly_the_services_found_get_ip_mode_proxy(name: str) -> None:
    found = _recorded(name)
    paths = {service.ref.path for service, identity in found if not identity.announcer}
    if not paths:
        with pytest.raises(SourceError, match=r"^no policy: .*(no LoadBalancer Service|announces)"):
            policy_text(found, V1)
        return
    policy = Policy(policy_text(found, V1))
    for obj in _services(SITUATIONS / name / "manifests"):
        metadata = obj["metadata"]
        admitted = policy.admit(obj)
        if f"{metadata.get('namespace', 'default')}/{metadata['name']}" not in paths:
            assert admitted == obj
            continue
        expected = [{**entry, "ipMode": "Proxy"} if "ip" in entry else entry for entry in _entries(obj)]
        assert _entries(admitted) == expected
        assert {**admitted, "status": None} == {**obj, "status": None}
        assert policy.admit(obj, "services") == obj


def test_a_list_of_all_sorts_is_changed_where_it_must_be_and_nowhere_else() -> None:
    policy = Policy(policy_text([_target()], V1))
    ports = [{"port": 443, "protocol": "TCP"}]
    status: list[Any] = [
        {"ip": "192.0.2.1", "ipMode": "VIP", "ports": ports},
        {"hostname": "lb.example.com"},
        {"ip": "2001:db8::1"},
        {"ip": "192.0.2.2", "ipMode": "Proxy", "hostname": "both.example.com"},
    ]
    admitted = policy.admit(_raw(status))
    assert policy.admit(admitted) == admitted
    assert _entries(admitted) == [
        {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": ports},
        {"hostname": "lb.example.com"},
        {"ip": "2001:db8::1", "ipMode": "Proxy"},
        {"ip": "192.0.2.2", "ipMode": "Proxy", "hostname": "both.example.com"},
    ]


@pytest.mark.parametrize("more", cases_of(__file__, "verdicts.yaml")["without_an_address"])
def test_a_status_without_an_address_is_stored_as_it_comes(more: dict[str, Any]) -> None:
    obj = {"metadata": {"namespace": "ingress", "name": "blue"}, **more}
    assert Policy(policy_text([_target()], V1)).admit(obj) == obj


def test_as_many_addresses_as_are_written_out_are_changed() -> None:
    many = _raw([{"ip": f"192.0.2.{number}"} for number in range(33)])
    modes = [entry.get("ipMode") for entry in _entries(Policy(policy_text([_target()], V1)).admit(many))]
    assert modes == ["Proxy"] * 32 + [None]


@pytest.mark.parametrize("key", ["name", "namespace"])
def test_a_service_of_another_name_or_namespace_is_stored_as_it_comes(key: str) -> None:
    policy = Policy(policy_text([_target()], V1))
    obj = _raw([{"ip": "192.0.2.1"}])
    assert policy.admit(obj) != obj
    obj["metadata"][key] = "another"
    assert policy.admit(obj) == obj


def test_a_service_that_no_longer_asks_for_proxy_is_left_to_its_controller() -> None:
    policy = Policy(policy_text([_target({_DIGITALOCEAN: "true"})], V1))
    status = [{"ip": "192.0.2.1"}]
    assert _entries(policy.admit(_raw(status, {_DIGITALOCEAN: "true"}))) != status
    assert _entries(policy.admit(_raw(status, {_DIGITALOCEAN: "false"}))) == status
    assert _entries(policy.admit(_raw(status, {}))) == status
    assert _entries(policy.admit(_raw(status))) == status


@pytest.mark.parametrize(
    "value", ["it's", "a\\", "' || true || '", "line\nbreak", "\x1b[2J", "\U0001f600", "\\'", '"""', "é"]
)
def test_no_value_breaks_out_of_the_expression_or_its_comment(value: str) -> None:
    target = _target({"example.com/x": value}, f"annotation example.com/x={value}")
    text = policy_text([target], V1)
    policy = Policy(text)
    status = [{"ip": "192.0.2.1"}]
    assert _entries(policy.admit(_raw(status, {"example.com/x": value}))) != status
    assert _entries(policy.admit(_raw(status, {"example.com/x": "another"}))) == status
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert all(line.startswith("#") for line in text.partition("---\n")[0].splitlines())


def test_its_head_names_the_addresses_and_their_modes() -> None:
    points = (point("192.0.2.1"), point("192.0.2.2", mode="Proxy"), point(hostname="lb.example.com"))
    text = policy_text([(replace(_target()[0], points=points), _target()[1])], V1)
    assert "\n# ingress/blue: 192.0.2.1 (ipMode VIP), 192.0.2.2 (ipMode Proxy): said so\n" in text


def test_a_service_that_the_configuration_lists_is_matched_by_its_name_alone() -> None:
    found = service(annotations={_DIGITALOCEAN: "false"})
    detected = identities(Snapshot(services=(found,)), config(proxies=["blue"]).load_balancers)
    ((_, identity),) = policy_targets([found], detected)
    assert identity.annotations == {}


def test_one_that_terminates_tls_is_in_the_policy_unless_it_is_excluded() -> None:
    key = "service.beta.kubernetes.io/do-loadbalancer-certificate-id"
    found = service(points=(point("192.0.2.1"),), annotations={key: "own"})
    excluded = replace(found, annotations={key: "own", "nodeagent.io/exclude": "true"})
    for one, annotations in ((found, [{key: "own"}]), (excluded, []), (replace(found, points=()), [])):
        detected = identities(Snapshot(services=(one,)), LoadBalancerOptions())
        assert [identity.annotations for _, identity in policy_targets([one], detected)] == annotations


def test_the_policy_is_one_that_the_api_takes() -> None:
    for version in ("v1", "v1beta1"):
        text = policy_text([_target({_DIGITALOCEAN: "true"})], ClusterAnswers(V1.version, policy_api=version))
        for obj in documents(text):
            assert obj["apiVersion"] == f"admissionregistration.k8s.io/{version}"
            validate(obj, "1.36")


def test_the_policy_is_a_fix_if_the_server_has_it() -> None:
    found = service(points=(point("192.0.2.1"),))
    identity = identify(found, LoadBalancerOptions(), "")
    assert "policy" in [each.way for each in ways_out(found, identity, "v1")]
    assert "policy" not in [each.way for each in ways_out(found, identity)]


def test_the_command_prints_a_policy_for_the_clusters_services(api: ApiServer, ask: Ask) -> None:
    api.store.serve(Resource(_GROUP, "v1", _POLICIES, "MutatingAdmissionPolicy", namespaced=False))
    annotations = {_DIGITALOCEAN: "true"}
    api.store.create(
        objects.load_balancer("blue", "ingress", addresses=["192.0.2.1"], annotations=annotations)
    )
    reply = ask("doctor", "--policy")
    assert reply.exit_code == 0
    (balancer,) = api.store.all("services")
    admitted = Policy(reply.stdout).admit(balancer)
    assert {entry["ipMode"] for entry in _entries(admitted)} == {"Proxy"}


def test_the_reason_is_reported_if_there_is_no_such_api() -> None:
    with pytest.raises(SourceError, match=r"API server \(v1\.33\.2\) does not serve .*; 1\.36 and later do"):
        policy_text([_target()], ClusterAnswers(version="v1.33.2"))
    with pytest.raises(SourceError, match="no policy: connection refused"):
        policy_text([_target()], ClusterAnswers(why={"policy_api": "connection refused"}))


@pytest.mark.parametrize(
    ("served", "best"), [((), ""), (("v1beta1",), "v1beta1"), (("v1beta1", "v1"), "v1"), (("v1alpha1",), "")]
)
def test_the_server_is_asked_which_version_it_has(
    api: ApiServer, tmp_path: Path, served: tuple[str, ...], best: str
) -> None:
    # Every server has version v1 of the group, for webhooks.
    api.store.serve(Resource(_GROUP, "v1", "validatingwebhookconfigurations", "X", namespaced=False))
    for version in served:
        api.store.serve(Resource(_GROUP, version, _POLICIES, "MutatingAdmissionPolicy", namespaced=False))
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        answers = ask_cluster(connection)
    assert (answers.policy_api, answers.why.get("policy_api", "")) == (best, "")


def test_a_server_that_does_not_answer_is_not_taken_for_one_without_policies(
    api: ApiServer, tmp_path: Path
) -> None:
    api.store.serve(Resource(_GROUP, "v1", _POLICIES, "MutatingAdmissionPolicy", namespaced=False))
    api.faults.add(faults.Answer(503), path="/apis/admissionregistration*", times=None)
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        answers = ask_cluster(connection)
    assert answers.policy_api == ""
    assert "503" in answers.why["policy_api"] or "unable to handle" in answers.why["policy_api"]


def test_an_answer_that_is_no_service_says_what_to_check(api: ApiServer, tmp_path: Path) -> None:
    api.faults.add(faults.Answer(200, body=b"{}"), path="*/kube-dns")
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        why = ask_cluster(connection).why["dns"]
    assert re.search("kube-dns: the answer can't be used: .*; check that this is an API server", why), why


@pytest.mark.parametrize("fields", cases_of(__file__, "verdicts.yaml")["announced"])
def test_an_address_that_depends_on_kube_proxys_rules_gets_no_policy(fields: dict[str, Any]) -> None:
    found = service("announced", **fields)
    identity = identify(found, config(proxies=["announced"]).load_balancers, "hcloud://1")
    (announced,) = policy_targets([found], {found.ref: identity})
    with pytest.raises(SourceError, match=r"ingress/announced: .* announces its address on a node"):
        policy_text([announced], V1)
    text = policy_text([announced, _target()], V1)
    assert "# Left out: ingress/announced: " in text
    assert "'announced'" not in text
    assert [each.way for each in ways_out(found, identity, "v1")] == ["announced", "nodeagent"]
