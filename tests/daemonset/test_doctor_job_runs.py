"""The doctor's Job as a container of the image, with its manifest's rights: its report, and its traces."""

from pathlib import Path

import pytest

from tests.daemonset.deployment import Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.kustomize import DAEMONSET
from tests.testbed.node_state import read_state
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image

_JOB = ("Job", "nodeagent-doctor", "doctor")
_SENDS_PROXY = {"metadata": {"annotations": {"nodeagent.io/proxy-protocol": "v1"}}}


def test_it_reports_that_the_node_is_affected_and_leaves_no_trace(
    world: World, image: ImageRoot, tmp_path: Path
) -> None:
    """Without a capability, as the user nobody, with a root that can't be written."""
    directory = tmp_path / "deployment"
    with Deployment(world, image, directory, DAEMONSET / "doctor", workload=_JOB, options={}) as deployment:
        api = deployment.api
        api.store.patch("services", INGRESS_SERVICE.name, INGRESS_SERVICE.namespace, _SENDS_PROXY)
        before, revision = read_state(world.node1), api.store.revision
        job = deployment.pod()
        job.start()
        doctor = job.containers["doctor"]
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
