"""daemonset/doctor: the doctor once on a node, before anything is installed; it can read and nothing else."""

from tests.apiserver.access import Rule, rules_bound_to
from tests.daemonset.kustomize import DAEMONSET, Object, render
from tests.daemonset.manifests import the

_OBJECTS = render(DAEMONSET / "doctor")
_NAMESPACE = "nodeagent-doctor"


def _spec() -> Object:
    spec: Object = the(_OBJECTS, "Job", "doctor")["spec"]["template"]["spec"]
    return spec


def _rules() -> list[Rule]:
    return rules_bound_to(_OBJECTS, _NAMESPACE, _spec()["serviceAccountName"])


def test_it_can_change_nothing() -> None:
    spec = _spec()
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    for volume in spec["volumes"]:
        assert "emptyDir" in volume or mounts[volume["name"]]["readOnly"] is True
    assert {verb for rule in _rules() for verb in rule.verbs} == {"list", "get"}
    assert not {"secrets", "configmaps", "*"} & {kind for rule in _rules() for kind in rule.resources}


def test_it_may_read_all_that_the_agents_read() -> None:
    base = render(DAEMONSET / "base")
    wanted = {
        (group, kind)
        for rule in rules_bound_to(base, "nodeagent", "nodeagent")
        if "list" in rule.verbs
        for group in rule.api_groups
        for kind in rule.resources
    }
    granted = {(group, kind) for rule in _rules() for group in rule.api_groups for kind in rule.resources}
    assert wanted <= granted
