"""The component coredns as pods: two replicas with their manifest's rights, of which one writes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM

import pytest
import yaml

from tests.apiserver import objects
from tests.apiserver.access import rules_bound_to
from tests.coredns.real import answer_of
from tests.daemonset.deployment import Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.kustomize import render
from tests.daemonset.manifests import the, with_components
from tests.daemonset.pods import Pod, admitted
from tests.testbed.addresses import LB, LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

_NAME = "nodeagent-coredns"
_ACCOUNT = f"system:serviceaccount:nodeagent:{_NAME}"
_TOKEN = "the-controllers-token"  # noqa: S105 - of the simulated server
_SECONDS = 40.0
_COREFILE = ".:53 {\n    errors\n    reload\n}\n"
_CONFIG = {
    "loadBalancers": {
        "services": [{"namespace": "ingress-nginx", "name": "ingress-nginx-controller"}],
    },
    "hosts": {"verify": "allow", "allow": ["example.test"]},
}


@pytest.fixture
def kustomization(tmp_path: Path) -> Path:
    """The base with the component."""
    directory = tmp_path / "my-cluster"
    directory.mkdir()
    return with_components(directory, "base", "../coredns")


@pytest.fixture
def component(world: World, image: ImageRoot, tmp_path: Path, kustomization: Path) -> Iterator[Deployment]:
    """It is known to an API server that has CoreDNS's ConfigMap, with the rights of its manifests alone."""
    with Deployment(world, image, tmp_path / "deployment", kustomization) as deployed:
        deployed.api.store.create(objects.config_map("coredns", "kube-system", {"Corefile": _COREFILE}))
        deployed.api.access.require_token(_TOKEN, _ACCOUNT)
        deployed.api.access.allow_only(rules_bound_to(render(kustomization), "nodeagent", _NAME), _ACCOUNT)
        yield deployed


@pytest.fixture
def replica(
    component: Deployment, image: ImageRoot, tmp_path: Path, kustomization: Path
) -> Iterator[Callable[[Host], Pod]]:
    """Starts a replica in the network of one of the testbed's pods."""
    template = admitted(the(render(kustomization), "Deployment", _NAME)["spec"]["template"])
    template["spec"]["hostNetwork"] = True  # its host's: a pod's
    directory = tmp_path / "replicas"
    directory.mkdir()
    token = {"token": _TOKEN, "namespace": "nodeagent"}
    token["ca.crt"] = (tmp_path / "deployment" / "authority.crt").read_text()
    made: list[Pod] = []

    def start(host: Host) -> Pod:
        pod = Pod(
            host,
            template,
            directory,
            image=(image.path, image.environment),
            contents={"config": {"nodeagent.yaml": yaml.safe_dump(_CONFIG)}, "token": token},
            variables={"KUBERNETES_SERVICE_HOST": str(LB), "KUBERNETES_SERVICE_PORT": "6443"},
        )
        made.append(pod)
        pod.start()
        return pod

    yield start
    for pod in made:
        pod.remove()


def _answers(component: Deployment, name: str, folder: Path) -> bool:
    text = component.api.store.get("configmaps", "coredns", "kube-system")["data"]["Corefile"]
    return answer_of(text, name, folder).startswith("169.254.66.")


def test_one_replica_writes_and_the_other_takes_over(
    world: World, component: Deployment, replica: Callable[[Host], Pod], tmp_path: Path
) -> None:
    """As the user nobody, with a root that can't be written; the kubelet's probes use the pod's address."""
    first = replica(world.pod1).containers["controller"]
    first.await_line('"message": "Became the writer"', seconds=_SECONDS)
    wait_until(lambda: _answers(component, SITE, tmp_path), "CoreDNS to know the site", seconds=_SECONDS)
    second = replica(world.pod2).containers["controller"]
    for host in (world.pod1, world.pod2):
        for page in ("healthz", "readyz"):
            url = f"http://{world.address(host)}:9467/{page}"
            wait_until(lambda url=url, host=host: host.curl(url).ok, url, seconds=_SECONDS)  # type: ignore[misc]
    assert "Became the writer" not in second.log()

    first.signal(SIGTERM)
    assert first.wait(seconds=_SECONDS) == 0, first.log()
    second.await_line('"message": "Became the writer"', seconds=_SECONDS)
    component.api.store.create(
        objects.ingress("later", hosts=["later.example.test"], addresses=[str(LOAD_BALANCER_IP)])
    )
    wait_until(
        lambda: _answers(component, "later.example.test", tmp_path), "the later site", seconds=_SECONDS
    )
    assert _answers(component, SITE, tmp_path)
    for log in (first.log(), second.log()):
        assert "Traceback" not in log
        assert '"level": "ERROR"' not in log
