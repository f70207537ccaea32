"""Verification by DNS: how soon a fresh node's hostnames are written, and what a lookup costs the agent."""

import time
from collections.abc import Iterator

from benchmarks import resources
from benchmarks.api import Api, host_of
from benchmarks.daemon import running
from benchmarks.figures import Figure, Goal
from tests.testbed import addresses

DNS = "Verification by DNS from a cold start"

_GOALS = {1000: Goal("seconds", 10.0), 10_000: Goal("seconds", 60.0)}
_LONGEST_SECONDS = 120.0


def measure(api: Api, names: int) -> Iterator[Figure]:
    """Measure an agent that knows nothing, from its start until all names are written; dnsmasq answers."""
    standing = [f"site-{number:05}" for number in range(names)]
    api.world.dns.set_records({host_of(name): [addresses.LOAD_BALANCER_IP] for name in standing})
    api.hold_ingresses(standing)
    began = time.monotonic()
    with running(api, {"verify": "dns", "allow": []}) as daemon:
        daemon.await_hosts(standing, _LONGEST_SECONDS)
        seconds = time.monotonic() - began
        used = daemon.cpu().own
        columns = {"seconds": seconds, "CPU seconds": used, "CPU ms each": 1000 * used / names}
        yield Figure(DNS, "all names written", "", names, columns, _GOALS.get(names))
        yield resources.memory(daemon, names, "all names verified by DNS")
