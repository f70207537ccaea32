"""daemonset/doctor: the doctor once on a node, before anything is installed; it can read and nothing else."""

from tests.apiserver.access import Rule, rules_bound_to
from tests.daemonset.deployment import Deploy
from tests.daemonset.manifests import deployed
from tests.testbed.node_state import read_state
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.world import World

_SENDS_PROXY = {"metadata": {"annotations": {"nodeagent.io/proxy-protocol": "v1"}}}


def _rules() -> list[Rule]:
    return rules_bound_to(deployed("doctor"), "nodeagent-doctor", "doctor")


def test_it_can_change_nothing() -> None:
    assert {verb for rule in _rules() for verb in rule.verbs} == {"list", "get"}
    assert not {"secrets", "configmaps", "*"} & {kind for rule in _rules() for kind in rule.resources}


def test_it_may_read_all_that_the_agents_read() -> None:
    def listed(rules: list[Rule]) -> set[tuple[str, str]]:
        having = [rule for rule in rules if "list" in rule.verbs]
        return {(group, kind) for rule in having for group in rule.api_groups for kind in rule.resources}

    assert listed(rules_bound_to(deployed(), "nodeagent", "nodeagent")) <= listed(_rules())


def test_it_reports_that_the_node_is_affected_and_leaves_no_trace(world: World, deploy: Deploy) -> None:
    """As a container of the image, the user nobody, with its manifest's rights and no capability."""
    deployment = deploy(deployed("doctor"), name="doctor", options={})
    api = deployment.api
    api.store.patch("services", INGRESS_SERVICE.name, INGRESS_SERVICE.namespace, _SENDS_PROXY)
    before, revision = read_state(world.node1), api.store.revision
    job = deployment.pod()
    doctor = job.container
    assert doctor.wait(seconds=60) == 0
    report = doctor.log()
    assert "Traceback" not in report
    assert report.splitlines()[-1] == "exit code 2"
    assert "affected" in report.splitlines()[0]
    assert "[ShortCircuitedAndCut]" in report
    assert "What to do" in report
    assert "forbidden" not in report.lower()
    job.remove()
    assert before.differences(read_state(world.node1)) == []
    assert api.store.revision == revision
