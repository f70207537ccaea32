"""The doctor's Job as a container of the image, with its manifest's rights: its report, and its traces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver import ApiServer
from tests.apiserver.access import rules_bound_to
from tests.apiserver.manifests import objects_under
from tests.apiserver.server import Tls
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.kustomize import DAEMONSET, render
from tests.daemonset.manifests import the
from tests.daemonset.pods import Pod, admitted
from tests.testbed.addresses import LB
from tests.testbed.certificates import make_certificate
from tests.testbed.fixtures import needs_root
from tests.testbed.inside import inside
from tests.testbed.node_state import read_state
from tests.testbed.world import MANIFESTS, World

pytestmark = [needs_root, pytest.mark.timeout(600)]  # the first test builds the image

_OBJECTS = render(DAEMONSET / "doctor")
_NAMESPACE = "nodeagent-doctor"
_PORT = 6443
_TOKEN = "the-doctors-token"  # noqa: S105 - of the simulated server
_ACCOUNT = f"system:serviceaccount:{_NAMESPACE}:doctor"


@pytest.fixture
def api(world: World, tmp_path: Path) -> Iterator[ApiServer]:
    """The world's objects, for the Job's account with the rights of its manifests."""
    certificate, key = tmp_path / "authority.crt", tmp_path / "authority.key"
    make_certificate(certificate, key, str(LB))
    server = ApiServer(str(LB), _PORT, tls=Tls(certificate, key, certificate))
    for found in objects_under(MANIFESTS):
        if found["kind"] == "Service":
            found["metadata"].setdefault("annotations", {})["nodeagent.io/proxy-protocol"] = "v1"
        server.store.create(found)
    server.access.require_token(_TOKEN, _ACCOUNT)
    server.access.allow_only(rules_bound_to(_OBJECTS, _NAMESPACE, "doctor"), _ACCOUNT)
    with inside(world.lb):
        server.start_listening()
    yield server
    server.close()


@pytest.fixture
def job(world: World, api: ApiServer, image: ImageRoot, tmp_path: Path) -> Iterator[Pod]:
    """Its pod on node1, not started."""
    directory = tmp_path / "pods"
    directory.mkdir()
    pod = Pod(
        world.node1,
        admitted(the(_OBJECTS, "Job", "doctor")["spec"]["template"]),
        directory,
        image=(image.path, image.environment),
        contents={
            "config": {"nodeagent.yaml": the(_OBJECTS, "ConfigMap", "doctor")["data"]["nodeagent.yaml"]},
            "token": {
                "token": _TOKEN,
                "ca.crt": (tmp_path / "authority.crt").read_text(),
                "namespace": _NAMESPACE,
            },
        },
        variables={"KUBERNETES_SERVICE_HOST": str(LB), "KUBERNETES_SERVICE_PORT": str(_PORT)},
    )
    yield pod
    pod.remove()


def test_it_reports_that_the_node_is_affected_and_leaves_no_trace(
    world: World, api: ApiServer, job: Pod
) -> None:
    """Without a capability, as the user nobody, with a root that can't be written."""
    before, revision = read_state(world.node1), api.store.revision
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
