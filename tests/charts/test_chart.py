"""The chart is one that Helm and Kubernetes take, and makes what daemonset/ makes; its values: cases.yaml."""

import json
import re
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent import __version__
from nodeagent.config.reading import parse_config
from release.schemas import CHART, VALUES_SCHEMA
from tests.cases import cases_of
from tests.charts import rendering
from tests.charts.rendering import HOOK, IMAGE, annotations_of, everything, files, helm, normal, objects
from tests.daemonset import manifests
from tests.daemonset.kubernetes_schemas import VERSIONS, validate
from tests.daemonset.kustomize import DAEMONSET, Object, render
from tests.daemonset.manifests import Workload, configuration, deployed, the, workload, workloads
from tests.daemonset.test_manifests import all_objects

Values = dict[str, Any]

CASES, EVERYTHING = (cases_of(__file__, name) for name in ("cases.yaml", "everything.yaml"))
_WITHOUT_CLEAN_UP: Values = {"uninstall": {"cleanUp": False}}
_MATRIX = {
    **{str(values): values for _, values in CASES["same"]},
    "everything": EVERYTHING,
    "no clean-up": _WITHOUT_CLEAN_UP,
}


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
    manifests.assert_sound(everything(_MATRIX[name], namespace))


def _at(objects: list[Object], where: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    kind, _, name = where.partition("/")
    found: Any = the(objects, kind, name)
    if path.startswith(("pod.", "container.")):
        found = {"pod": Workload(found).spec, "container": Workload(found).container}
    for key in path.split("."):
        found = found[int(key) if key.isdigit() else key]
    return found


@pytest.mark.parametrize("case", CASES["effects"], ids=lambda case: str(case["values"])[:40])
def test_values_have_their_effects(case: dict[str, Any]) -> None:
    made = objects(EVERYTHING if case["values"] == "everything" else case["values"])
    expected = json.loads(json.dumps(case).replace("VERSION", __version__))
    del expected["values"]
    wanted = {(where, path): value for where, rows in expected.items() for path, value in rows.items()}
    assert {place: _at(made, *place) for place in wanted} == wanted


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
    severities = {"NodeagentVanished": "none", "NodeagentRelayDown": "page"}
    metrics = {"enabled": True, "rules": True, "severities": severities, "alertLabels": {"team": "edge"}}
    (group,) = the(objects({"metrics": metrics}), "PrometheusRule")["spec"]["groups"]
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


@pytest.mark.parametrize(("values", "complaint"), CASES["rejected"])
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


@pytest.mark.parametrize(("values", "said", "unsaid"), CASES["notes"])
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
        assert packaged.render(given, name="nodeagent", namespace="nodeagent") == rendering.chart().render(
            given, name="nodeagent", namespace="nodeagent"
        )


def test_nothing_stays_behind_and_nothing_is_made_first() -> None:
    """No hook but the clean-up's, and no object that an uninstallation would keep."""
    hooks = {one["kind"]: annotations_of(one)[HOOK] for one in everything() if HOOK in annotations_of(one)}
    assert hooks == dict.fromkeys(("ServiceAccount", "Role", "RoleBinding", "Job"), "pre-delete")
    assert not any("helm.sh/resource-policy" in annotations_of(one) for one in everything(EVERYTHING))
    without = everything(_WITHOUT_CLEAN_UP)
    assert [one for one in without if HOOK in annotations_of(one)] == []


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


def test_every_overlay_and_component_can_be_had_by_values() -> None:
    assert {name for name, _ in CASES["same"]} == {*manifests.DEPLOYMENTS, *manifests.COMPONENTS}


@pytest.mark.parametrize(("name", "values"), CASES["same"])
def test_these_values_make_what_the_kustomization_makes(name: str, values: Values) -> None:
    assert _by_identity(objects(values)) == _by_identity(deployed(name))


def test_monitoring_is_the_same() -> None:
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
