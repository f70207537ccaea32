"""The component for CoreDNS: what Kubernetes takes, with no more rights and powers than it needs."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nodeagent import __version__
from nodeagent.config.options import Config, CoreDnsOptions
from nodeagent.config.reading import parse_config
from nodeagent.coredns.coredns_reconciler import CoreDnsReconciler
from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.cluster import read_cluster
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import post_event
from tests.apiserver import ApiServer
from tests.apiserver.access import Rule, rules_bound_to
from tests.apiserver.wire import Peer, request
from tests.coredns import cluster, corpus
from tests.daemonset.kustomize import DAEMONSET, Object, render
from tests.daemonset.manifests import DEPLOYMENTS, configuration, containers, pod, the, with_components

NAME = "nodeagent-coredns"


@pytest.fixture
def objects(tmp_path: Path) -> list[Object]:
    """What the base with the component makes."""
    return render(with_components(tmp_path, "base", "../coredns"))


def _pod(objects: list[Object]) -> Object:
    return pod(objects, "Deployment", NAME)


def _rules(objects: list[Object]) -> list[Rule]:
    return rules_bound_to(objects, "nodeagent", _pod(objects)["serviceAccountName"])


def test_it_only_adds_to_the_base(objects: list[Object]) -> None:
    base = render(DAEMONSET / "base")
    assert objects[: len(base)] == base
    assert {one["metadata"]["name"] for one in objects[len(base) :]} == {NAME, f"{NAME}-config"}


def test_it_has_no_power_over_the_host(objects: list[Object]) -> None:
    spec = _pod(objects)
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [list(volume) for volume in spec["volumes"]] == [["name", "configMap"]]
    assert spec["dnsPolicy"] == "Default", "CoreDNS knows nodeagent's own lines"
    (container,) = containers(spec).values()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == f"nodeagent:{__version__}"
    assert container["resources"]["limits"]["memory"]


def test_one_replica_which_another_node_starts_soon(objects: list[Object]) -> None:
    deployment = the(objects, "Deployment", NAME)
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    tolerated = {one["key"]: one["tolerationSeconds"] for one in _pod(objects)["tolerations"]}
    assert tolerated == {f"node.kubernetes.io/{state}": 30 for state in ("unreachable", "not-ready")}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    # The DaemonSet must not take these pods for its own.
    assert the(objects, "DaemonSet")["spec"]["selector"]["matchLabels"].items() - labels.items()


def test_the_names_in_the_role_are_those_of_the_configuration(objects: list[Object]) -> None:
    options: CoreDnsOptions = parse_config(configuration(objects), "base").coredns
    (rule,) = [rule for rule in _rules(objects) if "configmaps" in rule.resources]
    named = {options.config_map, options.import_config_map, options.node_local_config_map}
    assert (rule.namespace, set(rule.resource_names)) == (options.namespace, named)
    assert options == Config().coredns


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_it_may_read_whatever_the_agents_beside_it_read(deployment: str, tmp_path: Path) -> None:
    objects = _with_it(tmp_path, deployment)
    agents = rules_bound_to(objects, "nodeagent", "nodeagent")
    reading = [rule for rule in agents if "watch" in rule.verbs]
    assert reading
    assert [rule for rule in reading if rule not in _rules(objects)] == []


def _with_it(directory: Path, deployment: str) -> list[Object]:
    """What a deployment makes with the component, which one overlay brings itself."""
    objects = render(DAEMONSET / deployment)
    if any(one["kind"] == "Deployment" for one in objects):
        return objects
    return render(with_components(directory, deployment, "../coredns"))


def test_the_overlay_cilium_is_the_base_with_the_component(tmp_path: Path) -> None:
    """With all of its rights, and a configuration that says so."""
    found = render(DAEMONSET / "overlays/cilium")
    put_together = render(with_components(tmp_path, "base", "../coredns"))
    assert [one for one in found if one not in put_together] == [the(found, "ConfigMap")]
    assert [one for one in put_together if one not in found] == [the(put_together, "ConfigMap")]
    config, without = (parse_config(configuration(each), "cilium") for each in (found, put_together))
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
        return not done.errors and not post_event(connection, corefile, "CorefilePutBack", "x")


def test_the_rights_suffice(api: ApiServer, objects: list[Object], tmp_path: Path) -> None:
    for name in ("coredns-custom", "node-local-dns"):
        cluster.put(api, {"Corefile": ".:53 {\n    reload\n}\n"}, name)
    assert suffices(api, tmp_path, _rules(objects))


def _own_rules(objects: list[Object]) -> list[int]:
    """The rules that it has beyond the agents'."""
    agents = rules_bound_to(objects, "nodeagent", "nodeagent")
    return [number for number, rule in enumerate(_rules(objects)) if rule not in agents]


def test_no_right_of_its_own_can_be_done_without(objects: list[Object], tmp_path: Path) -> None:
    tried = 0
    for number in _own_rules(objects):
        for verb in _rules(objects)[number].verbs:
            rules = _rules(objects)
            rules[number] = replace(rules[number], verbs=[one for one in rules[number].verbs if one != verb])
            with ApiServer() as api:
                cluster.fill(api)
                assert not suffices(api, tmp_path, rules), f"{verb} of {rules[number].resources} is too much"
            tried += 1
    assert tried == 2


def test_by_import_it_writes_its_own_config_map_and_no_other(api: ApiServer, tmp_path: Path) -> None:
    narrowed = _rules(render(with_components(tmp_path, "base", "../coredns", "../coredns/import")))
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
