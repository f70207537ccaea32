"""Whichever process of a pod is killed or stopped: it heals by itself, and soon."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGSTOP, Signals
from statistics import median

import pytest

from tests.daemonset.deployment import Deployment
from tests.daemonset.pods import Container, Pod
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.errors import WorldError
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.processes import children
from tests.testbed.waiting import meanwhile, wait_until
from tests.testbed.world import World

_HEALED_SECONDS = 20.0


@contextmanager
def _kubelet(pod: Pod) -> Iterator[dict[str, int]]:
    """Start a pod's containers again that have ended, as long as this lasts; yields how often, by name.

    At once: the first time a kubelet does so, later it backs off. No container has a liveness probe.
    """
    restarts = dict.fromkeys(pod.containers, 0)

    def keep() -> None:
        for name, container in [*pod.containers.items()]:
            if not container.running:
                pod.restart(name)
                restarts[name] += 1

    with meanwhile(keep, 0.05):
        yield restarts


def _program(container: Container) -> int:
    """What process 1 of a container supervises; its other child, which it forks first, is the waker."""
    return next(child for child in children(container.pid) if _name(child) != _name(container.pid))


def _waker(container: Container) -> int:
    return next(child for child in children(container.pid) if _name(child) == _name(container.pid))


_OF_RELAY: Mapping[str, Callable[[Pod], int]] = {
    "relay's process 1": lambda pod: pod.relay.pid,
    "relay's waker": lambda pod: _waker(pod.relay),
    "HAProxy's master": lambda pod: _program(pod.relay),
    "HAProxy's worker": lambda pod: children(_program(pod.relay))[-1],
}
_OF_AGENT: Mapping[str, Callable[[Pod], int]] = {
    "agent's process 1": lambda pod: pod.agent.pid,
    "agent's waker": lambda pod: _waker(pod.agent),
    "agent": lambda pod: _program(pod.agent),
}


@pytest.mark.long
def test_each_process_is_killed_and_stopped(
    world: World, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, in one pod. Most of this is waiting, so two nodes wait at the same time."""
    users = (world.pod1, world.pod2)
    pods = [deployment.pod(node=node) for node in world.nodes]
    for pod in pods:
        pod.start()
    for pod in pods:
        pod.await_ready()

    def hurt(pod: Pod, user: Host, processes: Mapping[str, Callable[[Pod], int]]) -> dict[str, float]:
        with _kubelet(pod) as restarts:
            lasted = {
                f"{what}, {number.name}": _heal(pod, user, find(pod), number)
                for number in (SIGKILL, SIGSTOP)
                for what, find in processes.items()
            }
            # A kubelet delays restarts: only what it alone can start again, it does.
            assert sum(restarts.values()) == 1
        return lasted

    with ThreadPoolExecutor() as together:
        lasted = dict(
            one for node in together.map(hurt, pods, users, (_OF_RELAY, _OF_AGENT)) for one in node.items()
        )
    with capsys.disabled():
        for what, seconds in lasted.items():
            print(f"\n{what}: healed after {seconds:.1f} s")


def _heal(pod: Pod, user: Host, hurt: int, number: Signals) -> float:
    """Kill or stop a process; return after how many seconds the pod is whole and its node served."""
    # A program that was just started has a minute until its first sign of life.
    wait_until(partial(_shows_life, pod), f"signs of life of {pod.name}", seconds=60)
    began = time.monotonic()
    os.kill(hurt, number)
    if number is SIGKILL:
        wait_until(partial(_has_ended, hurt), "its end", every=0.001)
    else:
        wait_until(lambda: _has_ended(hurt) or _state(hurt) == "T", "its stop", every=0.001)
    wait_until(
        lambda: _is_whole(pod) and user.curl(f"https://{SITE}/", timeout=1).ok,
        f"healing of {pod.name}",
        seconds=_HEALED_SECONDS,
        every=0.1,
    )
    return time.monotonic() - began


def _is_whole(pod: Pod) -> bool:
    """Whether each process that belongs to it runs, and its agent reports."""
    try:
        found = [find(pod) for find in (*_OF_RELAY.values(), *_OF_AGENT.values())]
        states = [_state(pid) for pid in found]
    except (OSError, LookupError, StopIteration, WorldError):  # one has ended, or is not there yet
        return False
    return "T" not in states and pod.agent.probe("startupProbe").exit_code == 0


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_a_container_that_is_to_end_while_it_starts_ends(deployment: Deployment, name: str) -> None:
    """The kernel drops one to process 1 that neither blocks nor handles it; the kubelet sends no other."""
    pod = deployment.pod()
    pod.start()
    assert pod.containers[name].end_early() == 0


def test_a_killed_haproxy_is_back_at_once(
    world: World,
    deployment: Deployment,
    soak: bool,  # noqa: FBT001 - a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Again and again, without a container's restart: a kubelet would put it off by seconds, then minutes."""
    kills = 10 if soak else 4
    pod = deployment.ready_pod()
    lasted = []
    with _kubelet(pod) as restarts:
        for number in range(kills):
            killed = _OF_RELAY["HAProxy's master" if number % 3 == 2 else "HAProxy's worker"](pod)
            # One that did not live for a second is started again after another.
            wait_until(partial(_is_older, killed, 1.1), "a life of more than a second")
            began = time.monotonic()
            os.kill(killed, SIGKILL)
            wait_until(partial(_has_ended, killed), "its end", every=0.001)
            wait_until(lambda: _served(world), "the site being served", every=0.001)
            lasted.append(time.monotonic() - began)
        assert restarts == {"agent": 0, "relay": 0}
    assert pod.relay.log().count("starting it again") == kills
    with capsys.disabled():
        print("\nHAProxy killed: served again after", ", ".join(f"{1000 * each:.0f} ms" for each in lasted))
    # The promise, and what a busy machine may make of it once.
    assert median(lasted) < 0.3
    assert max(lasted) < 2


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def _shows_life(pod: Pod) -> bool:
    """Whether process 1 has seen HAProxy's answer, half a second after its start, and the agent's sign."""
    agent = _program(pod.agent)
    reported_at = (
        Path(f"/proc/{agent}/root/run/nodeagent-status/agent").read_text(encoding="utf-8").split()[0]
    )
    return _is_older(_program(pod.relay), 2.0) and int(reported_at) > _started_at(agent)


def _is_older(pid: int, seconds: float) -> bool:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _started_at(pid) > seconds


def _started_at(pid: int) -> float:
    """Return when it started, in seconds since boot."""
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


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
