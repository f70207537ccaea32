"""Users of a node while its pods change: connections without end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from tests.daemonset.image_root import REPOSITORY
from tests.testbed.addresses import LOAD_BALANCER_IP
from tests.testbed.namespaces import Host
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_until

_numbers = count(1)


class NewConnections:
    """One new connection after the other from a host, at an even rate; see new_connections.py."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def answered(self) -> int:
        """How many got the page."""
        return sum(int(line.split()[1]) for line in self._lines() if line.startswith("answered "))

    @property
    def failures(self) -> list[str]:
        """What became of the others."""
        return [line for line in self._lines() if not line.startswith(("answered ", "late "))]

    @property
    def late(self) -> list[str]:
        """When one took longer than 250 ms, and how long."""
        return [line for line in self._lines() if line.startswith("late ")]

    @property
    def longest_seconds(self) -> float:
        """The longest time that one took."""
        return max(float(line.split()[3]) for line in self._lines() if line.startswith("answered "))

    def await_more(self, more: int) -> None:
        """Wait until so many more were answered."""
        wanted = self.answered + more
        wait_until(lambda: self.answered >= wanted, f"{more} more connections")

    def _lines(self) -> list[str]:
        whole, _, _ = self._process.log.read_text(encoding="ascii").rpartition("\n")
        return whole.splitlines()


@contextmanager
def new_connections(host: Host, per_second: int) -> Iterator[NewConnections]:
    """Let a host make so many connections a second to the load balancer, as long as this lasts."""
    module = "tests.daemonset.new_connections"
    process = host.popen(
        [sys.executable, "-m", module, str(LOAD_BALANCER_IP), str(per_second)],
        log=f"connections-{next(_numbers)}",
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    made = NewConnections(process)
    try:
        made.await_more(1)
        yield made
        made.await_more(1)
    finally:
        process.stop()
