"""A container that hangs or is killed, under a kubelet that probes: how soon it is back."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.daemonset.kubelet import kubelet
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.inside import inside
from tests.testbed.processes import children
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from tests.daemonset.deployment import Deployment
    from tests.daemonset.pods import Container, Pod
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

pytestmark = pytest.mark.timeout(300)  # the first test makes the image: 40 s, if the network is fast

_BACK_SECONDS = 45.0


@pytest.mark.long
def test_what_hangs_is_back(world: World, deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGSTOP: it answers nothing and handles no SIGTERM. The pod's own grace period would be 5 minutes.

    Most of this is waiting for the times in the manifest, so two nodes wait at the same time.
    """
    users = (world.pod1, world.pod2)
    hung: tuple[list[tuple[str, ...]], ...] = ([("agent", "worker")], [("master",), ("worker",)])
    pods = [deployment.pod(node=node) for node in world.nodes]
    for pod in pods:
        pod.start()
    for pod in pods:
        pod.await_ready()

    def hang(pod: Pod, user: Host, each: list[tuple[str, ...]]) -> list[tuple[str, float]]:
        return [(" and ".join(one), _hang(pod, user, one)) for one in each]

    with ThreadPoolExecutor() as together:
        lasted = [one for node in together.map(hang, pods, users, hung) for one in node]
    with capsys.disabled():
        for what, seconds in lasted:
            print(f"\n{what} hung: back after {seconds:.1f} s")
    assert max(seconds for _, seconds in lasted) < _BACK_SECONDS


def _hang(pod: Pod, user: Host, hung: tuple[str, ...]) -> float:
    """Stop processes of a pod, of which one is HAProxy's; return after how many seconds it serves again."""
    before = pod.relay.log()
    master = _process(pod.relay, "master")
    restarted = {"agent": int("agent" in hung), "relay": 0}
    with kubelet(pod) as keeper:
        began = time.monotonic()
        if "agent" in hung:
            os.kill(pod.agent.pid, SIGSTOP)
        if "master" in hung:
            os.kill(master, SIGSTOP)

        def restarts_are_done() -> bool:
            if "worker" in hung:
                _stop_workers(master)
            return keeper.restarts == restarted and "starting it again" in pod.relay.log().removeprefix(
                before
            )

        wait_until(restarts_are_done, "the restarts", seconds=_BACK_SECONDS, every=0.05)
        pod.agent.await_probe("readinessProbe")
        pod.relay.await_probe("startupProbe")
        wait_until(lambda: user.curl(f"https://{SITE}/", timeout=1).ok, "the site being served", every=0.1)
        seconds = time.monotonic() - began
        # HAProxy is started again in its container: that is sooner, and no kubelet puts it off.
        assert keeper.restarts == restarted
        assert pod.relay.log().removeprefix(before).count("does not answer: killing it") == 1
    return seconds


def test_a_killed_haproxy_is_back_at_once(
    world: World,
    deployment: Deployment,
    soak: bool,  # noqa: FBT001 - a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Again and again, without a container's restart: a kubelet would put it off by seconds, then minutes."""
    kills = 10 if soak else 4
    pod = deployment.ready_pod()
    relay = pod.relay
    lasted = []
    with kubelet(pod) as keeper:
        for number in range(kills):
            killed = _process(relay, "master" if number % 3 == 2 else "worker")
            # One that did not live for a second is started again after another.
            wait_until(partial(_is_older, killed, 1.1), "a life of more than a second")
            began = time.monotonic()
            os.kill(killed, SIGKILL)
            wait_until(partial(_has_ended, killed), "its end", every=0.001)
            wait_until(lambda: _served(world), "the site being served", every=0.001)
            lasted.append(time.monotonic() - began)
        assert keeper.restarts == {"agent": 0, "relay": 0}
    assert relay.log().count("starting it again") == kills
    with capsys.disabled():
        print("\nHAProxy killed: served again after", ", ".join(f"{1000 * each:.0f} ms" for each in lasted))
    # The promise, and what a busy machine may make of it once.
    assert median(lasted) < 0.3
    assert max(lasted) < 2


def _stop_workers(master: int) -> None:
    """Also the worker of a reload, which the agent may have begun a moment before."""
    with suppress(FileNotFoundError, ProcessLookupError):  # killed meanwhile
        for worker in children(master):
            os.kill(worker, SIGSTOP)


def _process(container: Container, which: str) -> int:
    """HAProxy's master or worker, as the machine sees it."""
    master = children(container.pid)[-1]  # after the shell that watches
    return master if which == "master" else children(master)[-1]


def _is_older(pid: int, seconds: float) -> bool:
    started = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) / os.sysconf("SC_CLK_TCK") > seconds


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _served(world: World) -> bool:
    """Whether a page is served; a try is short: a SYN that met the dying listener is sent again after 1 s."""
    try:
        with inside(world.pod1), socket.create_connection((str(LOAD_BALANCER_IP), 80), timeout=0.05) as made:
            made.sendall(f"GET / HTTP/1.0\r\nHost: {SITE}\r\n\r\n".encode())
            made.settimeout(1.0)
            return made.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False
