"""At rest, both together: the agent and its relay, in one run with DNS."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.api import Api, host_of
from benchmarks.daemon import Daemon, cpu_of, running
from benchmarks.figures import Figure, Goal
from tests.testbed import addresses
from tests.testbed.world import Node

REST = "CPU time at rest, with DNS, everything together"
_GOAL = Goal("together", 0.5)
_FIRST_SYNC_SECONDS = 120.0
_PARTS = 4


def measure(api: Api, names: int, seconds: float) -> Iterator[Figure]:
    """Measure from the moment when DNS has verified all names, in percent of a core."""
    standing = [f"site-{number:05}" for number in range(names)]
    api.world.dns.set_records({host_of(name): [addresses.LOAD_BALANCER_IP] for name in standing})
    api.hold_ingresses(standing)
    with running(api, {"verify": "dns", "allow": []}) as daemon:
        daemon.await_hosts(standing, _FIRST_SYNC_SECONDS)
        relay = _haproxy(daemon.node)
        for part in range(_PARTS):
            columns = _percent(daemon, relay, seconds / _PARTS)
            what = f"{seconds * part / _PARTS:g} to {seconds * (part + 1) / _PARTS:g} s"
            yield Figure(REST, what, "%", names, columns, _GOAL)


def _percent(daemon: Daemon, relay: Iterable[int], seconds: float) -> dict[str, float]:
    """Return the shares of a core during this time."""

    def used() -> dict[str, float]:
        return {"agent": daemon.cpu().whole, "HAProxy": sum(map(cpu_of, relay))}

    began, before = time.monotonic(), used()
    time.sleep(seconds)
    after, took = used(), time.monotonic() - began
    shares = {what: (after[what] - before[what]) * 100 / took for what in after}
    return {**shares, "together": sum(shares.values())}


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
