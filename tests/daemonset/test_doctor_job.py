"""daemonset/doctor: the doctor once on a node, before anything is installed; it can read and nothing else."""

from pathlib import Path

from nodeagent import __version__
from nodeagent.config.reading import parse_config
from nodeagent.sources.kubernetes.cluster import read_cluster
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import ask_cluster
from tests.apiserver import ApiServer, objects
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


def test_it_looks_at_the_node_itself_and_leaves_by_itself() -> None:
    job, spec = the(_OBJECTS, "Job", "doctor")["spec"], _spec()
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "Default"
    assert job["backoffLimit"] == 0
    assert job["ttlSecondsAfterFinished"]
    configured = the(_OBJECTS, "ConfigMap", "doctor")["data"]["nodeagent.yaml"]
    hosts_file = parse_config(configured, "doctor").hosts.file
    (etc,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "etc"]
    assert str(hosts_file) == f"{etc['mountPath']}/hosts"
    assert spec["containers"][0]["image"] == f"nodeagent:{__version__}"
    assert {one["metadata"].get("namespace") for one in _OBJECTS} == {None, _NAMESPACE}


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


def test_nothing_that_it_asks_is_refused(tmp_path: Path) -> None:
    with ApiServer() as api:
        balancer = objects.load_balancer("web", "ingress", addresses=["203.0.113.10"], annotations={})
        api.store.create_many([objects.node("node1"), balancer])
        api.access.allow_only(_rules())
        with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
            assert read_cluster(connection, "node1").not_covered == ()
            answers = ask_cluster(connection)
        assert "forbidden" not in " ".join(answers.why.values()).lower()
