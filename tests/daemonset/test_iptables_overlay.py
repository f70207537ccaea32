"""The overlay iptables, with its own security context: what it serves, and what each of its rights is for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.managed_state import names
from tests.daemonset.deployment import Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.kustomize import DAEMONSET
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

_OVERLAY = DAEMONSET / "overlays" / "iptables"
_URL = f"https://{SITE}/"
_NEEDS_RAW = "It needs root, or CAP_NET_ADMIN and CAP_NET_RAW (in Kubernetes: daemonset/overlays/iptables)"

_LEFT = f"""*nat
:NODEAGENT-LB - [0:0]
-A NODEAGENT-LB -d {LOAD_BALANCER_IP}/32 -p tcp -m tcp --dport 443 -m comment --comment a/b -j RETURN
COMMIT
"""


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world whose kube-proxy writes legacy rules."""
    with World(kube_proxy="iptables-legacy") as standing:
        yield standing


@pytest.fixture
def overlay(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[Deployment]:
    """The overlay known to an API server; its pods are the test's to start, and removed after it."""
    with Deployment(world, image, tmp_path / "deployment", _OVERLAY) as deployed:
        yield deployed


def test_it_suffices_and_keeps_its_place_before_kube_proxy(world: World, overlay: Deployment) -> None:
    """python-iptables in the image; and through the mounted lock file kube-proxy's syncs are noticed."""
    node = world.node1
    pod = overlay.ready_pod(verify="allow", allow=["example.test"])
    assert _is_redirected(node)
    for user in (node, world.pod1):
        assert user.curl(_URL).ok
        assert user.curl(f"http://{LOAD_BALANCER_IP}/").ok
    # Both at once, as kube-proxy does: one between a repair and its check would be an error, and tried again.
    jumps = "".join(f"-I {chain} -j KUBE-SERVICES\n" for chain in ("OUTPUT", "PREROUTING"))
    node.run(["iptables-legacy-restore", "--wait", "5", "--noflush"], stdin=f"*nat\n{jumps}COMMIT\n")
    wait_until(lambda: _is_on_top(node), "our jumps standing on top again")
    # It is logged after the repair.
    pod.agent.await_line('"message": "Repaired drift", "component": "dnat"')
    assert '"level": "ERROR"' not in pod.agent.log()


def test_the_base_says_what_it_lacks_to_remove_what_the_overlay_left(
    world: World, deployment: Deployment
) -> None:
    """Never both: until then the overlay's rules go on to serve, and no others are made."""
    world.node1.run(["iptables-legacy-restore", "--noflush"], stdin=_LEFT)
    pod = deployment.pod()
    pod.start()
    pod.agent.await_line(_NEEDS_RAW)
    assert _is_redirected(world.node1)
    assert "inet nodeagent" not in world.node1.run(["nft", "list", "tables"]).stdout
    assert SITE in names(world.node1)


def _saved(node: Host) -> str:
    return node.run(["iptables-legacy-save", "-t", "nat"]).stdout


def _is_redirected(node: Host) -> bool:
    entry = f"-A NODEAGENT-LB -d {LOAD_BALANCER_IP}/32 -p tcp -m tcp --dport 443 -m comment"
    return entry in _saved(node)


def _is_on_top(node: Host) -> bool:
    lines = _saved(node).splitlines()
    return all(
        "NODEAGENT" in next(line for line in lines if line.startswith(f"-A {chain} "))
        for chain in ("OUTPUT", "PREROUTING")
    )
