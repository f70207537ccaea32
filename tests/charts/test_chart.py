"""The chart is one that Helm and Kubernetes take; bad values are rejected before anything is sent."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent import __version__
from release.schemas import CHART, VALUES_SCHEMA
from tests.charts.rendering import (
    HOOK,
    IMAGE,
    annotations_of,
    chart,
    everything,
    files,
    helm,
    normal,
    objects,
)
from tests.charts.test_same_as_kustomization import VALUES
from tests.daemonset.kubernetes_schemas import VERSIONS, validate
from tests.daemonset.kustomize import DAEMONSET
from tests.daemonset.manifests import assert_sound, configuration, the, workload, workloads
from tests.daemonset.test_manifests import all_objects

Values = dict[str, Any]

DIGEST = f"sha256:{'1' * 64}"
EVERYTHING: Values = yaml.safe_load(Path(__file__).with_name("everything.yaml").read_text("utf-8"))
_WITHOUT_CLEAN_UP: Values = {"uninstall": {"cleanUp": False}}
_MATRIX = {**VALUES, "everything": EVERYTHING, "no clean-up": _WITHOUT_CLEAN_UP}


def test_the_linter_finds_no_error_and_no_warning() -> None:
    found = helm.lint(CHART, strict=True)
    assert found["errors"] == []
    assert found["messages"] == []


def test_kubernetes_knows_every_field_of_every_rendering() -> None:
    """Those that equal the kustomization's are validated in tests/daemonset."""
    validated = {json.dumps(normal(one), sort_keys=True) for one in all_objects().values()}
    made = [normal(one) for values in _MATRIX.values() for one in everything(values)]
    rendered = {json.dumps(one, sort_keys=True): one for one in made}
    own = [one for text, one in rendered.items() if text not in validated]
    assert {"DaemonSet", "Deployment", "Job"} <= {one["kind"] for one in own}
    assert len(own) < len(rendered)
    for version in VERSIONS:
        for found in own:
            validate(found, version)


@pytest.mark.parametrize("namespace", ["nodeagent", "kube-system"])
@pytest.mark.parametrize("name", _MATRIX)
def test_everything_has_least_privilege_and_means_something(name: str, namespace: str) -> None:
    """In CoreDNS's own namespace, too."""
    assert_sound(everything(_MATRIX[name], namespace))


def _at(found: Any, path: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What is at a path of keys and indices, divided by dots."""
    for key in filter(None, path.split(".")):
        found = found[int(key) if key.isdigit() else key]
    return found


_AGENTS, _RELAYS, _COREDNS = (
    "DaemonSet/nodeagent",
    "DaemonSet/nodeagent-relay",
    "Deployment/nodeagent-coredns",
)
_POD, _CONTAINER = "spec.template.spec", "spec.template.spec.containers.0"
_HAPROXY = {"repository": "docker.io/library/haproxy", "tag": "3.0-alpine"}
_OF_ITS_OWN: Values = {
    "relay": {"image": _HAPROXY, "drainSeconds": 600, "updateStrategy": {"type": "OnDelete"}}
}
_IN_PART: Values = {"relay": {"resources": {"limits": {"memory": "2Gi"}}}, "tolerations": []}
_METRICS: Values = {
    "metrics": {
        "enabled": True,
        "rules": True,
        "podMonitor": True,
        "interval": "1m",
        "severities": {"NodeagentVanished": "none", "NodeagentRelayDown": "page"},
        "alertLabels": {"team": "edge"},
    }
}
# Values, an object, a path in it, what is there.
_EFFECTS: list[tuple[Values, str, str, Any]] = [
    (EVERYTHING, _AGENTS, f"{_CONTAINER}.image", f"images.example.com/nodeagent@{DIGEST}"),
    (EVERYTHING, _RELAYS, f"{_CONTAINER}.image", f"images.example.com/haproxy@{DIGEST}"),
    (EVERYTHING, _AGENTS, f"{_CONTAINER}.imagePullPolicy", "Always"),
    (EVERYTHING, _RELAYS, f"{_CONTAINER}.imagePullPolicy", "Always"),
    (EVERYTHING, _AGENTS, f"{_CONTAINER}.resources", EVERYTHING["agent"]["resources"]),
    (EVERYTHING, _RELAYS, f"{_CONTAINER}.resources", EVERYTHING["relay"]["resources"]),
    (EVERYTHING, _AGENTS, "spec.updateStrategy", {"type": "OnDelete"}),
    (EVERYTHING, _AGENTS, f"{_POD}.nodeSelector", {"kubernetes.io/os": "linux", "pool": "edge"}),
    (EVERYTHING, _AGENTS, f"{_POD}.tolerations", EVERYTHING["tolerations"]),
    (EVERYTHING, _AGENTS, f"{_POD}.affinity", EVERYTHING["affinity"]),
    (EVERYTHING, _AGENTS, f"{_POD}.priorityClassName", "edge-critical"),
    (EVERYTHING, _COREDNS, f"{_CONTAINER}.resources.limits", {"memory": "300Mi"}),
    (EVERYTHING, _COREDNS, f"{_POD}.nodeSelector", {"kubernetes.io/os": "linux", "pool": "dns"}),
    (EVERYTHING, _COREDNS, f"{_POD}.affinity", {"podAntiAffinity": {}}),
    (EVERYTHING, _COREDNS, f"{_POD}.priorityClassName", "system-cluster-critical"),
    # What is set in part leaves the rest.
    (_IN_PART, _RELAYS, f"{_CONTAINER}.resources.requests", {"cpu": "10m", "memory": "32Mi"}),
    (_IN_PART, _RELAYS, f"{_CONTAINER}.resources.limits", {"memory": "2Gi"}),
    (_IN_PART, _RELAYS, f"{_POD}.tolerations", []),
    # The relay has values of its own.
    (_OF_ITS_OWN, _RELAYS, f"{_POD}.terminationGracePeriodSeconds", 600),
    (_OF_ITS_OWN, _RELAYS, f"{_CONTAINER}.image", "docker.io/library/haproxy:3.0-alpine"),
    (_OF_ITS_OWN, _RELAYS, "spec.updateStrategy", {"type": "OnDelete"}),
    (_OF_ITS_OWN, _AGENTS, f"{_CONTAINER}.image", f"nodeagent:{__version__}"),
    (_OF_ITS_OWN, _AGENTS, "spec.updateStrategy.type", "RollingUpdate"),
    # A tag alone, or a repository alone, names an image that the release knows nothing about.
    ({"image": {"tag": "0.2.0"}}, _AGENTS, f"{_CONTAINER}.image", "nodeagent:0.2.0"),
    (
        {"image": {"repository": "images.example.com/na"}},
        *(_AGENTS, f"{_CONTAINER}.image", f"images.example.com/na:{__version__}"),
    ),
    # GKE rejects pods of system-node-critical outside of kube-system without a quota.
    (
        {"resourceQuota": True},
        *("ResourceQuota/nodeagent", "spec.scopeSelector.matchExpressions"),
        [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}],
    ),
    (_METRICS, "PodMonitor/nodeagent", "spec.podMetricsEndpoints.0.interval", "1m"),
    (_METRICS, "PodMonitor/nodeagent-coredns", "spec.podMetricsEndpoints.0.interval", "1m"),
]


@pytest.mark.parametrize(
    ("values", "where", "path", "wanted"),
    [pytest.param(*row, id=f"{number}-{row[1]}") for number, row in enumerate(_EFFECTS)],
)
def test_a_value_has_its_effect(values: Values, where: str, path: str, wanted: object) -> None:
    kind, _, name = where.partition("/")
    assert _at(the(objects(values), kind, name), path) == wanted


def test_every_object_and_pod_has_what_all_have() -> None:
    made = everything(EVERYTHING)
    for one in made:
        assert one["metadata"]["labels"]["cost-center"] == "edge"
    for pods in workloads(made).values():
        assert {"cost-center": "edge", "mesh": "off"}.items() <= pods.template["metadata"]["labels"].items()
        assert pods.spec["imagePullSecrets"] == [{"name": "pull"}]
    agents = workload(made)
    assert agents.template["metadata"]["annotations"]["example.com/team"] == "edge"
    assert agents.environment["NODEAGENT_TELEMETRY_LISTEN"] == "[$(HOST_IP)]:9467"
    assert agents.environment["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    # The controller's own tolerations are added to those by which it leaves an unreachable node.
    tolerations = workload(made, "nodeagent-coredns").spec["tolerations"]
    assert EVERYTHING["coredns"]["tolerations"][0] in tolerations
    assert "node.kubernetes.io/unreachable" in {one["key"] for one in tolerations}
    assert "ResourceQuota" not in {one["kind"] for one in objects()}


def test_alerts_can_be_left_out_and_routed() -> None:
    (group,) = the(objects(_METRICS), "PrometheusRule")["spec"]["groups"]
    labels = {rule["alert"]: rule["labels"] for rule in group["rules"]}
    assert labels["NodeagentRelayDown"] == {"severity": "page", "team": "edge"}
    assert labels["NodeagentDown"] == {"severity": "warning", "team": "edge"}
    assert "NodeagentVanished" not in labels


def test_a_configuration_is_merged_into_the_bases() -> None:
    text = configuration(objects({"config": {"hosts": {"exclude": ["internal.example.com"]}}}))
    assert yaml.safe_load(text)["hosts"] == {
        "file": "/host/etc/hosts",
        "allow": [],
        "dnsServers": [],
        "exclude": ["internal.example.com"],
    }


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"config": {"hosts": {"alow": []}}}, "'alow' not allowed"),
        ({"config": {"hosts": {"file": "/etc/hosts"}}}, "'file' not allowed"),
        ({"config": {"relay": {"runDir": "/var/run"}}}, "'runDir' not allowed"),
        ({"config": {"dnat": {"backend": "ipvs"}}}, "/config/dnat/backend"),
        ({"config": {"loadBalancers": {"services": [{"name": "x"}]}}}, "missing property 'namespace'"),
        ({"config": {"dnat": {"podCIDRs": ["10.0.0.0/99"]}}}, "/config/dnat/podCIDRs/0"),
        ({"config": {"relay": {"ipv4": "999.0.0.0/24"}}}, "/config/relay/ipv4"),
        ({"relay": {"resources": {"limit": {"memory": "2Gi"}}}}, "'limit' not allowed"),
        ({"image": {"repository": ""}}, "image.repository is empty"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"repository": "registry.example.com/nodeagent:0.1.0"}}, "/image/repository"),
        ({"image": {"repository": f"nodeagent@sha256:{'0' * 64}"}}, "/image/repository"),
        ({"image": {"repository": "oci://registry.example.com/nodeagent"}}, "/image/repository"),
        ({"relay": {"image": {"repository": "haproxy:3.0"}}}, "/relay/image/repository"),
        ({"cordns": {"enabled": True}}, "'cordns' not allowed"),
        ({"dataPlane": "ovn"}, "/dataPlane"),
        (
            {"dataPlane": "cilium", "config": {"dnat": {"backend": "auto"}}},
            "cilium contradicts .*backend: auto",
        ),
        ({"dataPlane": "calico-ebpf", "coredns": {"enabled": False}}, "contradicts .*enabled: false"),
        ({"dataPlane": "cilium", "config": {"coredns": {"servesPods": False}}}, "servesPods: false"),
        ({"dataPlane": "kube-proxy", "config": {"dnat": {"backend": "none"}}}, "leave out dataPlane"),
        ({"dataPlane": "kube-proxy", "coredns": {"enabled": True}}, "contradicts .*enabled: true"),
        ({"metrics": {"rules": True}}, "need metrics.enabled: true"),
        ({"metrics": {"podMonitor": True}}, "need metrics.enabled: true"),
        (
            {"metrics": {"enabled": True, "rules": True, "severities": {"RelayDown": "page"}}},
            "there is no alert RelayDown",
        ),
        ({"metrics": {"runbookURL": "docs/runbook.md"}}, "/metrics/runbookURL"),
    ],
)
def test_bad_values_are_rejected_with_their_place(values: Values, complaint: str) -> None:
    with pytest.raises(helm.HelmError, match=complaint):
        objects(values)


def test_a_copy_without_its_links_says_so(tmp_path: Path) -> None:
    """Flux leaves symbolic links out of what it reads from Git (source-controller, `storage.Archive`)."""
    copy = tmp_path / "nodeagent"
    shutil.copytree(CHART, copy, ignore=lambda _, names: {"files"}.intersection(names))
    with pytest.raises(helm.HelmError, match="lacks files/"):
        helm.Chart.load(copy).render({"image": IMAGE}, name="nodeagent", namespace="nodeagent")


def test_what_the_api_lets_nobody_change_is_the_same_with_all_values() -> None:
    """Or an upgrade would be rejected: a workload's selector, and a binding's role."""

    def fixed(values: Values) -> dict[tuple[str, str], object]:
        return {
            (one["kind"], one["metadata"]["name"]): one["roleRef"]
            if "roleRef" in one
            else one["spec"]["selector"]
            for one in objects(values)
            if "roleRef" in one or "template" in one.get("spec", {})
        }

    before, after = fixed({}), fixed(EVERYTHING)
    assert {"DaemonSet", "ClusterRoleBinding"} <= {kind for kind, _ in before}
    assert before.items() <= after.items()


def test_a_change_of_the_configuration_alone_replaces_no_pod() -> None:
    """The pods' template stays as it is: nothing is restarted, no connection ends."""
    changed = objects({"config": {"hosts": {"allow": ["corp.example.com"]}}})
    assert the(changed, "DaemonSet") == the(objects(), "DaemonSet")
    assert "corp.example.com" in configuration(changed)


_ROLLOUT = "rollout status daemonset/nodeagent"


def _known_to_one(schema: Values, values: Values, *path: str) -> set[tuple[str, ...]]:
    """What values.yaml or the schema alone knows, down to `config` and Kubernetes' own objects."""
    properties = schema.get("properties", {})
    if schema.get("additionalProperties", True) is not False or not properties:
        return set()
    found = {(*path, name) for name in properties.keys() ^ values.keys()}
    for name in properties.keys() & values.keys() - {"config"}:
        found |= _known_to_one(properties[name], values[name], *path, name)
    return found


def test_values_and_schema_know_the_same() -> None:
    schema = json.loads(VALUES_SCHEMA.read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    # Accepted, so that values of earlier charts are, and because Helm adds it.
    assert _known_to_one(schema, values) == {("global",)}


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, ["Pods: served by DNAT", "set dataPlane", "resourceQuota: true"], "cluster-pool"),
        ({}, [f"kubectl -n edge {_ROLLOUT}", "-- nodeagent doctor"], "nodeagent uninstall"),
        (_WITHOUT_CLEAN_UP, ["nodeagent uninstall"], "cluster-pool"),
        ({"dataPlane": "kube-proxy"}, ["Pods: served by DNAT"], "set dataPlane"),
        ({"dataPlane": "cilium"}, ["served by lines", "Pods: served by CoreDNS", "cluster-pool"], "DNAT"),
        ({"dataPlane": "calico-ebpf"}, ["deployment/nodeagent-coredns"], "cluster-pool"),
        (
            {"dataPlane": "cilium", "config": {"dnat": {"podCIDRs": ["10.0.0.0/8"]}}},
            ["served by CoreDNS"],
            "cluster-pool",
        ),
        (
            {"config": {"dnat": {"backend": "none"}}},
            ["Pods: NOT served (config.dnat.backend)"],
            "served by DNAT",
        ),
        ({"config": {"hosts": {"enabled": False}}}, ["Nodes: served by DNAT."], "/etc/hosts."),
        (
            {"config": {"dnat": {"backend": "none"}, "hosts": {"enabled": False}}},
            ["Nodes: NOT", "Pods: NOT"],
            ": served",
        ),
        (
            {"config": {"dnat": {"pods": False}}},
            ["Nodes: served by DNAT", "NOT served (config.dnat.pods)"],
            "Pods: served",
        ),
        (
            {"config": {"dnat": {"backend": "none"}, "coredns": {"servesPods": True}}},
            ["starts no controller"],
            "NOT served",
        ),
    ],
)
def test_the_notes_speak_of_the_clusters_own_case(values: Values, said: list[str], unsaid: str) -> None:
    notes = files(values, "edge")["NOTES.txt"]
    assert [part for part in said if part not in notes] == []
    assert unsaid not in notes


def test_the_package_holds_the_objects_themselves(tmp_path: Path) -> None:
    """In the repository they are links to daemonset/; a package must not need that directory."""
    archive = helm.package(CHART, destination=tmp_path)
    with tarfile.open(archive) as packed:
        members = {one.name: one for one in packed.getmembers()}
        assert all(one.isfile() for one in members.values())
        held = packed.extractfile("nodeagent/files/base/daemonset.yaml")
        assert held is not None
        assert held.read() == (DAEMONSET / "base" / "daemonset.yaml").read_bytes()
    assert "nodeagent/files/base/namespace.yaml" not in members
    with helm.Chart.load(archive) as packaged:
        given = {"image": IMAGE}
        assert packaged.render(given, name="nodeagent", namespace="nodeagent") == chart().render(
            given, name="nodeagent", namespace="nodeagent"
        )


def test_nothing_stays_behind_and_nothing_is_made_first() -> None:
    """No hook but the clean-up's, and no object that an uninstallation would keep."""
    hooks = {one["kind"]: annotations_of(one)[HOOK] for one in everything() if HOOK in annotations_of(one)}
    assert hooks == dict.fromkeys(("ServiceAccount", "Role", "RoleBinding", "Job"), "pre-delete")
    assert not any("helm.sh/resource-policy" in annotations_of(one) for one in everything(EVERYTHING))
    without = everything(_WITHOUT_CLEAN_UP)
    assert [one for one in without if HOOK in annotations_of(one)] == []
