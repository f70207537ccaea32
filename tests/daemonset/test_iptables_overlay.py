from collections.abc import Iterator

import pytest

from tests.daemon.legacy_rules import is_on_top, legacy_rules, push_down, restore_legacy
from tests.daemon.managed_state import names
from tests.daemonset.deployment import Deploy, Deployment
from tests.daemonset.manifests import deployed
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_URL = f"https://{SITE}/"
_NEEDS_RAW = "It needs root, or CAP_NET_ADMIN and CAP_NET_RAW (in Kubernetes: daemonset/overlays/iptables)"

_LEFT = f""":NODEAGENT-LB - [0:0]
-A NODEAGENT-LB -d {LOAD_BALANCER_IP}/32 -p tcp -m tcp --dport 443 -m comment --comment a/b -j RETURN
"""


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    with World(kube_proxy="iptables-legacy") as standing:
        yield standing


def test_it_suffices_and_keeps_its_place_before_kube_proxy(world: World, deploy: Deploy) -> None:
    """python-iptables in the image; and through the mounted lock file kube-proxy's syncs are noticed."""
    node = world.node1
    pod = deploy(deployed("overlays/iptables")).ready_pod()
    assert _is_redirected(node)
    for user in (node, world.pod1):
        assert user.curl(_URL).ok
        assert user.curl(f"http://{LOAD_BALANCER_IP}/").ok
    push_down(node)
    wait_until(lambda: is_on_top(node), "our jumps standing on top again")
    # It is logged after the repair.
    pod.container.await_line('"message": "Repaired drift", "component": "dnat"')
    assert '"level": "ERROR"' not in pod.container.log()


def test_the_base_says_what_it_lacks_to_remove_the_overlays(world: World, deployment: Deployment) -> None:
    """Never both: until then the overlay's rules go on to serve, and no others are made."""
    restore_legacy(world.node1, _LEFT)
    deployment.relay_pod()
    pod = deployment.pod()
    pod.container.await_line(_NEEDS_RAW)
    assert _is_redirected(world.node1)
    assert "inet nodeagent" not in world.node1.run(["nft", "list", "tables"]).stdout
    assert SITE in names(world.node1)


def _is_redirected(node: Host) -> bool:
    entry = f"-A NODEAGENT-LB -d {LOAD_BALANCER_IP}/32 -p tcp -m tcp --dport 443 -m comment"
    return entry in legacy_rules(node)
