"""The chart makes what daemonset/ makes: the base by default, each overlay and component by values."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from nodeagent.config.reading import parse_config
from tests.charts.rendering import normal, objects
from tests.daemonset.kustomize import DAEMONSET, Object, render
from tests.daemonset.manifests import COMPONENTS, DEPLOYMENTS, deployed

Values = dict[str, Any]

VALUES: dict[str, Values] = {
    "base": {},
    "overlays/cilium": {
        "config": {"dnat": {"backend": "none"}, "coredns": {"servesPods": True}},
        "coredns": {"enabled": True},
    },
    "overlays/existing-relay": {
        "config": {
            "relay": {"kind": "service", "service": {"namespace": "hairpin-proxy", "name": "hairpin-proxy"}}
        },
        "adopt": True,
    },
    "overlays/iptables": {"config": {"dnat": {"backend": "iptables"}}},
    "adopt": {"adopt": True},
    "hosts-file-only": {"hostsFileOnly": True},
    "metrics": {"metrics": {"enabled": True}},
    "selinux": {"selinux": True},
    "../coredns": {"coredns": {"enabled": True}},
}


def _by_identity(found: Sequence[Object]) -> dict[tuple[str, str, str], Object]:
    """Each object by its kind and name; the text of the configuration is replaced by what it says."""
    result = {}
    for one in map(normal, found):
        if one["kind"] == "ConfigMap" and "nodeagent.yaml" in one["data"]:
            one["data"] = parse_config(one["data"]["nodeagent.yaml"], "nodeagent.yaml")
        result[one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]] = one
    # Helm makes the namespace of a release by itself, or it exists.
    result.pop(("Namespace", "", "nodeagent"), None)
    return result


@pytest.mark.parametrize(
    ("values", "name"),
    [
        *((VALUES[name], name) for name in (*DEPLOYMENTS, *COMPONENTS)),
        ({"dataPlane": "kube-proxy"}, "base"),
        ({"dataPlane": "cilium"}, "overlays/cilium"),
        ({"dataPlane": "calico-ebpf"}, "overlays/cilium"),
    ],
)
def test_the_base_each_overlay_and_each_component(values: Values, name: str) -> None:
    assert _by_identity(objects(values)) == _by_identity(deployed(name))


def test_monitoring() -> None:
    wanted = dict.fromkeys(("enabled", "podMonitor", "rules", "dashboard"), True)
    # By itself, the chart leaves out a link that leads nowhere.
    linked = objects({"metrics": {**wanted, "runbookURL": "https://example.com/runbook.md"}})
    ours = json.loads(json.dumps(linked).replace("https://example.com/runbook.md#", "docs/runbook.md#"))
    kinds = {"PodMonitor", "PrometheusRule"}
    assert _by_identity([one for one in ours if one["kind"] in kinds]) == _by_identity(
        render(DAEMONSET / "monitoring")
    )
    (dashboard,) = [one for one in ours if one["metadata"]["name"] == "nodeagent-dashboard"]
    assert dashboard["data"] == {
        "nodeagent.json": (DAEMONSET / "monitoring" / "dashboard.json").read_text("utf-8")
    }
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_in_another_namespace_everything_is_there() -> None:
    """Nothing refers to the namespace `nodeagent` any more, except what is in no namespace."""
    values = {"coredns": {"enabled": True}, "metrics": {"enabled": True, "podMonitor": True, "rules": True}}
    found = objects(values, namespace="edge")
    assert {one["metadata"].get("namespace") for one in found} == {"edge", "kube-system", None}
    for one in found:
        assert {subject["namespace"] for subject in one.get("subjects", [])} <= {"edge"}
    (rules,) = [one for one in found if one["kind"] == "PrometheusRule"]
    assert set(re.findall(r"-n (\S+)", json.dumps(rules))) == {"edge"}
    assert 'job="edge/nodeagent"' in yaml.safe_dump(rules)
    assert "nodeagent/nodeagent" not in yaml.safe_dump(rules)
    assert 'namespace="edge",daemonset="nodeagent"' in yaml.safe_dump(rules, width=1000)
    assert 'namespace="nodeagent"' not in yaml.safe_dump(rules, width=1000)
