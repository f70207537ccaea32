"""At rest, everything together: the agent, its relay, and the DaemonSet's probes, in one run with DNS."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

import yaml

from benchmarks.api import Api, host_of
from benchmarks.daemon import Daemon, cpu_of, cpu_of_children, running
from benchmarks.figures import Figure, Goal
from tests.testbed import addresses
from tests.testbed.agent import RUN_DIRECTORY
from tests.testbed.node import Node

REST = "CPU time at rest, with DNS, everything together"
_GOAL = Goal("together", 0.5)
_FIRST_SYNC_SECONDS = 120.0
_PARTS = 4
_KINDS = ("livenessProbe", "readinessProbe")
_DAEMONSET = Path(__file__).parents[1] / "daemonset" / "deploy.yaml"


def measure(api: Api, names: int, seconds: float) -> Iterator[Figure]:
    """Measure from the moment when DNS has verified all names, in percent of a core.

    The probes and the shell that watches HAProxy are the DaemonSet's own commands, run at its intervals. The
    container runtime's share of a probe is not part of it.
    """
    standing = [f"site-{number:05}" for number in range(names)]
    api.world.dns.set_records({host_of(name): [addresses.LOAD_BALANCER_IP] for name in standing})
    api.hold_ingresses(standing)
    directory = api.world.tmp / "probes"
    directory.mkdir(exist_ok=True)
    with running(api, {"verify": "dns", "allow": []}, ["--probe-dir", str(directory)]) as daemon:
        daemon.await_hosts(standing, _FIRST_SYNC_SECONDS)
        commands = _Commands(daemon.node, directory)
        relay = _haproxy(daemon.node)
        # On the node, whose processes are in a namespace of their own: it kills all that it sees.
        watch = daemon.node.popen(["sh", "-c", commands.watch], log="watch", env=commands.environment)
        for part in range(_PARTS):
            columns = _percent(daemon, relay, watch.pid, commands, seconds / _PARTS)
            what = f"{seconds * part / _PARTS:g} to {seconds * (part + 1) / _PARTS:g} s"
            yield Figure(REST, what, "%", names, columns, _GOAL)
        watch.stop(SIGKILL)


def _percent(
    daemon: Daemon, relay: Iterable[int], watch: int, commands: "_Commands", seconds: float
) -> dict[str, float]:
    """Return the shares of a core during this time."""

    def used() -> dict[str, float]:
        return {
            "agent": daemon.cpu().whole,
            "HAProxy": sum(map(cpu_of, relay)),
            "its watch": cpu_of(watch) + cpu_of_children(watch),
        }

    began, before = time.monotonic(), used()
    of_probes = commands.run_probes(began + seconds)
    after, took = used(), time.monotonic() - began
    columns = {what: after[what] - before[what] for what in after} | {"probes": of_probes}
    shares = {what: each * 100 / took for what, each in columns.items()}
    return {**shares, "together": sum(shares.values())}


@dataclass(slots=True)
class _Probe:
    """A probe of a container that has started, and when it is due (monotonic seconds)."""

    command: list[str]
    period: float
    due: float = 0.0


class _Commands:
    """The commands of the DaemonSet's containers, with the paths that a node of the testbed has.

    Args:
        node: where the agent and HAProxy run.
        directory: the agent's files for probes.
    """

    def __init__(self, node: Node, directory: Path) -> None:
        self._places = {
            "/run/nodeagent-probe": str(directory),
            "/run/nodeagent-relay": f"/proc/{node.pid}/root{RUN_DIRECTORY}",
        }
        documents = yaml.safe_load_all(_DAEMONSET.read_text(encoding="utf-8"))
        daemonset = next(each for each in documents if each["kind"] == "DaemonSet")
        containers: list[dict[str, Any]] = daemonset["spec"]["template"]["spec"]["containers"]
        relay = next(each for each in containers if each["name"] == "relay")
        self.environment = {"PATH": os.environ["PATH"]} | {
            each["name"]: self._placed(each["value"]) for each in relay["env"]
        }
        self.watch = self._placed(relay["command"][-1].partition("watch &")[0]) + "watch"
        probes = [each[kind] for each in containers for kind in _KINDS if kind in each]
        self.probes = [
            _Probe([*map(self._placed, probe["exec"]["command"])], probe["periodSeconds"]) for probe in probes
        ]

    def run_probes(self, until: float) -> float:
        """Run the probes at their intervals until then (monotonic seconds).

        Returns:
            The CPU seconds of their programs.

        Raises:
            RuntimeError: one failed.
        """
        used = 0.0
        while (probe := min(self.probes, key=lambda each: each.due)).due < until:
            time.sleep(max(0.0, probe.due - time.monotonic()))
            program = os.posix_spawnp(probe.command[0], probe.command, self.environment)
            _, status, usage = os.wait4(program, 0)
            if status:
                raise RuntimeError(f"a probe failed: {probe.command}")
            used += usage.ru_utime + usage.ru_stime
            probe.due = time.monotonic() + probe.period
        time.sleep(max(0.0, until - time.monotonic()))
        return used

    def _placed(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        return text


def _haproxy(node: Node) -> list[int]:
    """Return the processes of HAProxy in a node's network, by the machine's process ids."""
    network = Path(f"/proc/{node.pid}/ns/net").readlink()
    found = (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [int(entry.name) for entry in found if _is_haproxy(entry, network)]


def _is_haproxy(process: Path, network: Path) -> bool:
    try:
        return (process / "ns/net").readlink() == network and (process / "exe").readlink().name == "haproxy"
    except (FileNotFoundError, PermissionError):  # It has ended, is of the kernel, or of another container.
        return False
