"""Whichever process of a node's pods is killed: it is back soon. Probes find one that hangs."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from statistics import median

import pytest

from tests.daemonset.deployment import Deployment
from tests.daemonset.pods import Pod
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.inside import inside
from tests.testbed.processes import children
from tests.testbed.waiting import meanwhile, wait_until
from tests.testbed.world import World


@contextmanager
def _kubelet(*pods: Pod) -> Iterator[dict[str, int]]:
    """Start containers that have ended again, as a kubelet does the first time; yields how often, by name."""
    restarts = {pod.container.name: 0 for pod in pods}

    def keep() -> None:
        for pod in pods:
            if not pod.container.running:
                pod.restart()
                restarts[pod.container.name] += 1

    with meanwhile(keep, 0.05):
        yield restarts


def _master(pod: Pod) -> int:
    return next(each for each in children(pod.container.pid) if _name(each) == "haproxy")


def _worker(pod: Pod) -> int:
    return children(_master(pod))[-1]


@pytest.mark.long
def test_each_process_is_killed_and_comes_back(world: World, deployment: Deployment) -> None:
    agent = deployment.ready_pod()
    (relay,) = deployment.relays
    hurt: Mapping[str, Callable[[], int]] = {
        "agent": lambda: agent.container.pid,
        "relay's process 1": lambda: relay.container.pid,
        "HAProxy's master": lambda: _master(relay),
        "HAProxy's worker": lambda: _worker(relay),
    }
    with _kubelet(agent, relay) as restarts:
        for what, find in hurt.items():
            victim = find()
            os.kill(victim, SIGKILL)
            wait_until(partial(_has_ended, victim), f"the end of {what}", every=0.001)
            wait_until(lambda: _served(world), f"the site being served after {what}", seconds=20, every=0.1)
            wait_until(lambda: _is_well(agent), f"the agent being well after {what}", seconds=20, every=0.1)
        # A kubelet delays restarts: only what it alone can start again, it does.
        assert restarts == {"agent": 1, "relay": 1}


def test_one_that_hangs_fails_its_liveness_probe(deployment: Deployment) -> None:
    agent = deployment.ready_pod()
    (relay,) = deployment.relays
    for container, stopped in ((relay.container, _worker(relay)), (agent.container, agent.container.pid)):
        assert container.probe("livenessProbe").exit_code == 0
        os.kill(stopped, SIGSTOP)
        assert container.probe("livenessProbe").exit_code != 0
        os.kill(stopped, SIGCONT)
        container.await_probe("livenessProbe")


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_a_container_that_is_to_end_while_it_starts_ends(deployment: Deployment, name: str) -> None:
    """The kernel drops one to process 1 that neither blocks nor handles it; the kubelet sends no other."""
    container = (deployment.relay_pod() if name == "relay" else deployment.pod()).container
    if name == "relay":
        container.await_line("Loading success")
    assert container.end_early() == 0


def test_a_killed_haproxy_is_back_at_once(
    world: World, deployment: Deployment, soak: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Again and again, without a container's restart: a kubelet would put it off by seconds, then minutes."""
    kills = 9 if soak else 4
    agent = deployment.ready_pod()
    (relay,) = deployment.relays
    lasted = []
    with _kubelet(agent, relay) as restarts:
        for number in range(kills):
            killed = _master(relay) if number % 3 == 2 else _worker(relay)
            began = time.monotonic()
            os.kill(killed, SIGKILL)
            wait_until(partial(_has_ended, killed), "its end", every=0.001)
            wait_until(lambda: _served(world), "the site being served", every=0.001)
            lasted.append(time.monotonic() - began)
            wait_until(lambda: _is_well(agent), "the agent being well", seconds=20, every=0.1)
            # One that does not live for five seconds counts: ten in a row end the container.
            wait_until(partial(_is_older, _master(relay), 5.0), "a life of five seconds", seconds=20)
        assert restarts == {"agent": 0, "relay": 0}
    assert relay.container.log().count("starting it again") == kills
    with capsys.disabled():
        print("\nHAProxy killed: served again after", ", ".join(f"{1000 * each:.0f} ms" for each in lasted))
    # The promise, and what a busy machine may make of it once.
    assert median(lasted) < 0.5
    assert max(lasted) < 2


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def _is_older(pid: int, seconds: float) -> bool:
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    started = int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started > seconds


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _is_well(agent: Pod) -> bool:
    page = agent.node.curl("http://127.0.0.1:9467/readyz", timeout=2)
    return page.ok and "failed" not in page.body


def _served(world: World) -> bool:
    """Whether a page is served; a try is short: a SYN that met the dying listener is sent again after 1 s."""
    try:
        with inside(world.pod1), socket.create_connection((str(LOAD_BALANCER_IP), 80), timeout=0.05) as made:
            made.sendall(f"GET / HTTP/1.0\r\nHost: {SITE}\r\n\r\n".encode())
            made.settimeout(1.0)
            return made.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False
