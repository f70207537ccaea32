"""A rollout over a node whose relay has connections: what it waits for, and what it does not take away."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.connections import new_connections
from tests.daemonset.deployment import OPTIONS, Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.pods import Pod
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

_IDLE_SECONDS = 10
"""relay.idleSeconds; 30 by default."""


@pytest.fixture
def deployment(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[Deployment]:
    """The DaemonSet, with that time in its configuration."""
    options = {**OPTIONS, "relay": {"idleSeconds": _IDLE_SECONDS}}
    with Deployment(world, image, tmp_path / "deployment", options=options) as deployed:
        yield deployed


@pytest.mark.long
def test_a_rollout_does_not_wait_for_an_idle_connection(world: World, deployment: Deployment) -> None:
    """But for downloads, as test_rehearsals.py shows."""
    node = world.node1
    old = deployment.ready_pod()
    with _kept(node) as idle:
        new = deployment.ready_pod()
        new.agent.await_line("Became the writer")
        old.terminate()
        wait_until(lambda: _is_closed(idle), "the idle connection's end", seconds=_IDLE_SECONDS + 5)
    _await_gone(old)
    assert node.curl(f"https://{SITE}/").ok


def test_a_new_pod_whose_relay_is_late_takes_nothing_away(world: World, deployment: Deployment) -> None:
    """Its agent writes by then; what points at the older pod's relay stays."""
    old, new = deployment.ready_pod(), deployment.pod()
    with new_connections(world.node1), new_connections(world.node1, target=SITE):
        new.start(without="relay")
        new.agent.await_line("HAProxy does not listen on")
        new.restart("relay")
        new.await_ready()
        old.terminate()
        _await_gone(old)


def _kept(node: Host) -> socket.socket:
    """A connection to the load balancer that was used and is kept, as containerd keeps its own."""
    made = node.connect(LOAD_BALANCER_IP, 80)
    made.sendall(f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode())
    assert made.recv(65536).startswith(b"HTTP/1.1 200")
    return made


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False


def _await_gone(pod: Pod) -> None:
    for container in (pod.relay, pod.agent):
        assert container.wait(seconds=20) == 0
    pod.remove()
