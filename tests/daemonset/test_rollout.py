"""A rollout over nodes whose relays have connections: what it waits for, and for how long."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.connections import SlowDownload, new_connections
from tests.daemonset.deployment import OPTIONS, Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.pods import Pod
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

_MIN_READY_SECONDS = 5.0
"""minReadySeconds of the DaemonSet."""
_IDLE_SECONDS = 30
"""relay.idleSeconds, its default; the short form sets a third of it, which is as long as a new pod takes."""
_LONGEST_SECONDS = 100.0
"""What a node's rollout may take with these two."""


@pytest.fixture
def idle_seconds(soak: bool) -> int:  # noqa: FBT001 - a fixture
    """Seconds after which an idle connection is closed."""
    return _IDLE_SECONDS if soak else _IDLE_SECONDS // 3


@pytest.fixture
def deployment(world: World, image: ImageRoot, tmp_path: Path, idle_seconds: int) -> Iterator[Deployment]:
    """The DaemonSet, with that time in its configuration."""
    options = {**OPTIONS, "relay": {"idleSeconds": idle_seconds}}
    with Deployment(world, image, tmp_path / "deployment", options=options) as deployed:
        yield deployed


@pytest.mark.long
def test_a_rollout_waits_for_downloads_and_not_for_idle_connections(
    world: World,
    deployment: Deployment,
    idle_seconds: int,
    soak: bool,  # noqa: FBT001 - a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two nodes, one after the other, as with maxSurge: 1."""
    nodes = (world.node1, world.node2)
    image = world.push_image(16)
    old = {node: deployment.pod(node=node) for node in nodes}
    for pod in old.values():
        pod.start()
        pod.await_ready()
    with ExitStack() as stack:
        download = SlowDownload(world.node2, image)
        download.check()
        took = []
        for node in nodes:
            idle = stack.enter_context(_kept(node))
            began = time.monotonic()
            new = deployment.pod(node=node)
            new.start()
            new.await_ready()
            ready = time.monotonic()
            # The controller of DaemonSets waits so long, and the new agent takes over in this time.
            new.agent.await_line("Became the writer", seconds=_MIN_READY_SECONDS)
            waited = time.monotonic() - ready
            if soak:
                # What the controller waits for is this length of time.
                time.sleep(max(0.0, _MIN_READY_SECONDS - waited))
            old[node].terminate()
            ended = time.monotonic()
            wait_until(partial(_is_closed, idle), "the idle connection", seconds=idle_seconds + 5)
            closed = time.monotonic()
            if node is world.node2:
                download.check()
                assert old[node].relay.running
                download.finish()
            _await_gone(old[node])
            whole = time.monotonic() - began
            if not soak:
                whole += _MIN_READY_SECONDS - waited + _IDLE_SECONDS - idle_seconds
            took.append((ready - began, closed - ended, whole))
            assert node.curl(f"https://{SITE}/").ok
    with capsys.disabled():
        for ready_after, closed_after, whole in took:
            print(
                f"\na node's rollout: new pod ready after {ready_after:.1f} s, idle connection closed "
                f"{closed_after:.1f} s after the stop signal, old pod gone after {whole:.1f} s"
            )
    assert max(whole for _, _, whole in took) < _LONGEST_SECONDS


def test_a_new_pod_whose_relay_is_late_takes_nothing_away(world: World, deployment: Deployment) -> None:
    """Its agent writes by then; what points at the older pod's relay stays."""
    old, new = deployment.pod(), deployment.pod()
    old.start()
    old.await_ready()
    with new_connections(world.node1), new_connections(world.node1, target=SITE):
        new.start(without="relay")
        new.agent.await_line("HAProxy does not listen on")
        new.restart("relay")
        new.await_ready()
        old.terminate()
        _await_gone(old)


def _kept(node: Host) -> socket.socket:
    """A connection to the load balancer that was used and is kept, as containerd keeps its own."""
    with inside(node):
        made = socket.create_connection((str(LOAD_BALANCER_IP), 80), timeout=5)
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
