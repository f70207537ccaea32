from pathlib import Path
from signal import SIGTERM

import pytest

from tests.apiserver import objects
from tests.coredns.real import answer_of
from tests.daemonset.deployment import Deploy, Deployment
from tests.daemonset.manifests import deployed
from tests.daemonset.pods import Container
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_SECONDS = 40.0
_COREFILE = ".:53 {\n    errors\n    template IN ANY . {\n        rcode NXDOMAIN\n    }\n    reload\n}\n"
"""A CoreDNS with nothing that answers other names fails (SERVFAIL) until the controller has written."""


@pytest.fixture
def component(deploy: Deploy) -> Deployment:
    """It is known to an API server that has CoreDNS's ConfigMap, with the rights of its manifests alone."""
    made = deploy(deployed("../coredns"), name="nodeagent-coredns")
    made.api.store.create(objects.config_map("coredns", "kube-system", {"Corefile": _COREFILE}))
    return made


def _start(component: Deployment, host: Host) -> Container:
    template = component.template
    template["spec"]["hostNetwork"] = True  # its host's: a pod's
    return component.pod(template, host).container


def test_a_controller_that_is_to_end_while_it_starts_ends(world: World, component: Deployment) -> None:
    assert _start(component, world.pod1).end_early() == 0


def _answers(component: Deployment, name: str, folder: Path) -> bool:
    text = component.api.store.get("configmaps", "coredns", "kube-system")["data"]["Corefile"]
    return answer_of(text, name, folder).startswith("169.254.66.")


def test_the_controller_writes_and_the_next_too(world: World, component: Deployment, tmp_path: Path) -> None:
    """As the user nobody, with a root that can't be written; the kubelet's probes use the pod's address."""
    first = _start(component, world.pod1)
    wait_until(lambda: _answers(component, SITE, tmp_path), "CoreDNS to know the site", seconds=_SECONDS)
    for page in ("healthz", "readyz"):
        url = f"http://{world.address(world.pod1)}:9467/{page}"
        wait_until(lambda url=url: world.pod1.curl(url).ok, url, seconds=_SECONDS)  # type: ignore[misc]
    first.signal(SIGTERM)
    assert first.wait(seconds=_SECONDS) == 0, first.log()
    assert _answers(component, SITE, tmp_path)

    component.api.store.create(
        objects.ingress("later", hosts=["later.example.test"], addresses=[str(LOAD_BALANCER_IP)])
    )
    second = _start(component, world.pod2)
    wait_until(
        lambda: _answers(component, "later.example.test", tmp_path), "the later site", seconds=_SECONDS
    )
    assert _answers(component, SITE, tmp_path)
    for log in (first.log(), second.log()):
        assert "Traceback" not in log
        assert '"level": "ERROR"' not in log
