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
from tests.charts.test_same_as_kustomization import ADDED_BY, DEPLOYED_BY
from tests.daemonset.kubernetes_schemas import VERSIONS, validate
from tests.daemonset.kustomize import DAEMONSET, Object
from tests.daemonset.manifests import configuration, containers, pod, the
from tests.daemonset.test_manifests import all_objects

Values = dict[str, Any]

DIGEST = f"sha256:{'1' * 64}"
EVERYTHING: Values = {
    "config": {"dnat": {"backend": "iptables"}, "hosts": {"allow": ["corp.example.com"]}},
    "image": {"repository": "images.example.com/nodeagent", "digest": DIGEST, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "commonLabels": {"cost-center": "edge"},
    "podLabels": {"mesh": "off"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
    "updateStrategy": {"type": "OnDelete"},
    "agent": {"resources": {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": {"memory": "300Mi"}}},
    "relay": {
        "image": {"repository": "images.example.com/haproxy", "digest": DIGEST},
        "drainSeconds": 60,
        "updateStrategy": {"type": "OnDelete"},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "2Gi"}},
    },
    "tolerations": [{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"pool": "edge"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "edge", "operator": "Exists"}]}]
            }
        }
    },
    "priorityClassName": "edge-critical",
    "resourceQuota": True,
    "podAnnotations": {"example.com/team": "edge"},
    "adopt": True,
    "hostsFileOnly": True,
    "selinux": True,
    "metrics": {"enabled": True, "ipv6": True, "dashboard": True},
    "coredns": {
        "enabled": True,
        "resources": {"limits": {"memory": "300Mi"}},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "nodeSelector": {"pool": "dns"},
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
}
_WITHOUT_CLEAN_UP: Values = {"uninstall": {"cleanUp": False}}
_MATRIX = {**DEPLOYED_BY, **ADDED_BY, "everything": EVERYTHING, "no clean-up": _WITHOUT_CLEAN_UP}


def test_the_linter_finds_no_error_and_no_warning() -> None:
    found = helm.lint(CHART, strict=True)
    assert found["errors"] == []
    assert found["messages"] == []


def test_kubernetes_knows_every_field_of_every_rendering(tmp_path: Path) -> None:
    """Those that equal the kustomization's are validated in tests/daemonset."""

    def as_text(found: Object) -> str:
        return json.dumps(normal(found), sort_keys=True)

    validated = {as_text(one) for one in all_objects(tmp_path)}
    rendered = {as_text(one): one for values in _MATRIX.values() for one in everything(values)}
    own = [one for text, one in rendered.items() if text not in validated]
    assert {"DaemonSet", "Deployment", "Job"} <= {one["kind"] for one in own}
    assert len(own) < len(rendered)
    for version in VERSIONS:
        for found in own:
            validate(found, version)


@pytest.mark.parametrize("namespace", ["nodeagent", "kube-system"])
def test_no_object_is_rendered_twice(namespace: str) -> None:
    """In CoreDNS's own namespace neither: the second of a name would fail, or replace the first."""
    made = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in everything(EVERYTHING, namespace)
    ]
    assert len(made) == len(set(made))


def test_every_value_has_its_effect() -> None:
    found = objects(EVERYTHING)
    spec = pod(found)
    agent = containers(spec)["agent"]
    relay = containers(pod(found, name="nodeagent-relay"))["relay"]
    assert agent["image"] == f"images.example.com/nodeagent@{DIGEST}"
    assert relay["image"] == f"images.example.com/haproxy@{DIGEST}"
    assert (agent["imagePullPolicy"], relay["imagePullPolicy"]) == ("Always", "Always")
    assert agent["resources"] == EVERYTHING["agent"]["resources"]
    assert relay["resources"] == EVERYTHING["relay"]["resources"]
    assert agent["securityContext"]["capabilities"]["add"] == ["NET_ADMIN", "NET_RAW"]
    for pod_of in (
        spec,
        *(one["spec"]["template"]["spec"] for one in everything(EVERYTHING) if one["kind"] == "Job"),
    ):
        assert pod_of["imagePullSecrets"] == [{"name": "pull"}]
    for one in everything(EVERYTHING):
        assert one["metadata"]["labels"]["cost-center"] == "edge"
        if "template" in one.get("spec", {}):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert {"cost-center": "edge", "mesh": "off"}.items() <= labels.items()
    assert the(found, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "edge"}
    for name in ("tolerations", "affinity", "priorityClassName"):
        assert spec[name] == EVERYTHING[name]
    template = the(found, "DaemonSet")["spec"]["template"]["metadata"]
    assert template["annotations"]["example.com/team"] == "edge"
    variables = {one["name"]: one.get("value") for one in agent["env"]}
    assert variables["NODEAGENT_TELEMETRY_LISTEN"] == "[$(HOST_IP)]:9467"
    assert variables["HTTPS_PROXY"] == "http://proxy.example.com:3128"


def test_the_controller_of_coredns_can_be_placed_as_the_agents_can() -> None:
    """Where every node has a taint, it would stay Pending."""
    spec = pod(objects(EVERYTHING), "Deployment", "nodeagent-coredns")
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "300Mi"}
    assert EVERYTHING["coredns"]["tolerations"][0] in spec["tolerations"]
    assert "node.kubernetes.io/unreachable" in {one["key"] for one in spec["tolerations"]}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "dns"}
    assert spec["affinity"] == {"podAntiAffinity": {}}
    assert spec["priorityClassName"] == "system-cluster-critical"


def test_what_is_set_in_part_leaves_the_rest() -> None:
    values = {"relay": {"resources": {"limits": {"memory": "2Gi"}}}, "tolerations": []}
    found = pod(objects(values), name="nodeagent-relay")
    assert containers(found)["relay"]["resources"] == {
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"memory": "2Gi"},
    }
    assert found["tolerations"] == []


def test_a_quota_admits_the_pods_priority() -> None:
    """GKE rejects pods of system-node-critical outside of kube-system without one."""
    assert "ResourceQuota" not in {one["kind"] for one in objects()}
    spec = the(objects({"resourceQuota": True}), "ResourceQuota")["spec"]
    (wanted,) = spec["scopeSelector"]["matchExpressions"]
    assert wanted == {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}


def test_alerts_can_be_left_out_and_routed() -> None:
    metrics = {
        "enabled": True,
        "rules": True,
        "podMonitor": True,
        "interval": "1m",
        "severities": {"NodeagentVanished": "none", "NodeagentRelayDown": "page"},
        "alertLabels": {"team": "edge"},
    }
    found = objects({"metrics": metrics})
    (group,) = the(found, "PrometheusRule")["spec"]["groups"]
    labels = {rule["alert"]: rule["labels"] for rule in group["rules"]}
    assert labels["NodeagentRelayDown"] == {"severity": "page", "team": "edge"}
    assert labels["NodeagentDown"] == {"severity": "warning", "team": "edge"}
    assert "NodeagentVanished" not in labels
    monitors = [one for one in found if one["kind"] == "PodMonitor"]
    assert {one["spec"]["podMetricsEndpoints"][0]["interval"] for one in monitors} == {"1m"}


def test_the_relay_has_values_of_its_own() -> None:
    image = {"repository": "docker.io/library/haproxy", "tag": "3.0-alpine"}
    strategy = {"type": "OnDelete"}
    found = objects({"relay": {"image": image, "drainSeconds": 600, "updateStrategy": strategy}})
    spec = pod(found, name="nodeagent-relay")
    assert spec["terminationGracePeriodSeconds"] == 600
    assert containers(spec)["relay"]["image"] == "docker.io/library/haproxy:3.0-alpine"
    assert the(found, "DaemonSet", "nodeagent-relay")["spec"]["updateStrategy"] == strategy
    assert containers(pod(found))["agent"]["image"] == f"nodeagent:{__version__}"
    assert the(found, "DaemonSet")["spec"]["updateStrategy"]["type"] == "RollingUpdate"


def test_an_image_of_ones_own_does_not_keep_the_released_digest() -> None:
    """A tag alone, or a repository alone, names an image that the release knows nothing about."""
    for image, wanted in (
        ({"tag": "0.2.0"}, "nodeagent:0.2.0"),
        ({"repository": "images.example.com/na"}, f"images.example.com/na:{__version__}"),
    ):
        assert containers(pod(objects({"image": image})))["agent"]["image"] == wanted


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


def test_the_notes_say_what_to_run_next() -> None:
    notes = files(namespace="edge")["NOTES.txt"]
    assert "kubectl -n edge rollout status daemonset/nodeagent" in notes
    assert "-- nodeagent doctor" in notes
    assert "nodeagent uninstall" not in notes
    assert "nodeagent uninstall" in files(_WITHOUT_CLEAN_UP)["NOTES.txt"]


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, ["Pods: served by DNAT", "set dataPlane", "resourceQuota: true"], "cluster-pool"),
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
    notes = files(values)["NOTES.txt"]
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
