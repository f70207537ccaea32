"""The daemon that is measured: `nodeagent run` on node1, from start to end."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from signal import SIGHUP, SIGTERM
from types import MappingProxyType

import yaml

from benchmarks.api import LB_NAME, LB_NAMESPACE, ROOT, Api, host_of
from benchmarks.entering import HttpConnection
from tests.testbed.agent import RUN_DIRECTORY
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_until
from tests.testbed.world import NODEAGENT_CONFIG, Node

_TELEMETRY = ("127.0.0.1", 9467)
_START_SECONDS = 60.0
_QUIET_SECONDS, _NEXT_TO_NO_CPU = 0.5, 0.005
_ANY_NUMBER = 1_000_000
_AS_IN_THE_IMAGE = (
    "import sys; sys.modules['kubernetes_validate'] = sys.modules['chardet'] = None; "
    "from nodeagent.__main__ import main; main()"
)
"""The client loads these tools of tests and releases if they are installed; no user has these 6 MB."""
_TICKS = 100.0
"""Of a second; USER_HZ is 100 on every architecture that Linux supports."""


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    # Its CPU clock by its process id, to the nanosecond (include/linux/posix-timers.h: CPUCLOCK_SCHED).
    return time.clock_gettime(~pid << 3 | 2)


def cpu_of_children(pid: int) -> float:
    """Return the CPU seconds of the programs that a process ran to their end."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU time so far: the agent's own, and of the programs it ran to their end (nft)."""

    own: float
    children: float

    @property
    def whole(self) -> float:
        """Both."""
        return self.own + self.children

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own - other.own, self.children - other.children)


class Daemon:
    """A running agent.

    Args:
        node: where it runs.
        process: its process.
        config: its configuration file.
    """

    def __init__(self, node: Node, process: Process, config: Path) -> None:
        self.node = node
        self._process = process
        self._config_file = config
        self._pid = process.pid

    @property
    def hosts_file(self) -> Path:
        """The hosts file, as this process reaches it."""
        return self.node.etc / "hosts"

    def await_names(self, names: list[str]) -> None:
        """Wait until all these names are in the hosts file, all parts are applied, and it rests."""
        expected = {host_of(name).encode() for name in names}

        def synced() -> bool:
            self._process.check_running()
            return self._is_ready() and expected <= set(self.hosts_file.read_bytes().split())

        wait_until(synced, "the agent's first sync", seconds=_START_SECONDS)
        self.await_rest()

    def await_hosts(self, names: list[str], seconds: float) -> None:
        """Wait until all these names are in the hosts file."""
        self.await_names_of(map(host_of, names), seconds)

    def await_names_of(self, hosts: Iterable[str], seconds: float = _START_SECONDS) -> None:
        """Wait until all these hosts are in the hosts file."""
        expected = {host.encode() for host in hosts}
        wait_until(
            lambda: expected <= set(self.hosts_file.read_bytes().split()),
            "all names in the hosts file",
            seconds=seconds,
        )

    def reload(self, hosts: Mapping[str, object]) -> None:
        """Replace options of the section `hosts` in the configuration, and have the agent reload it."""
        _write_config(self._config_file, hosts)
        self._process.signal(SIGHUP)

    def await_rest(self) -> None:
        """Wait until the agent has used next to no CPU for a while."""
        last, since = self.cpu().whole, time.monotonic()

        def rests() -> bool:
            nonlocal last, since
            used = self.cpu().whole
            if used - last > _NEXT_TO_NO_CPU:
                last, since = used, time.monotonic()
            return time.monotonic() - since > _QUIET_SECONDS

        wait_until(rests, "the agent at rest", seconds=_START_SECONDS)

    def cpu(self) -> Cpu:
        """CPU time so far."""
        return Cpu(cpu_of(self._pid), cpu_of_children(self._pid))

    def memory(self) -> dict[str, float]:
        """Resident memory in MB: now, of that private to the process, and the most there ever was."""
        lines = Path(f"/proc/{self._pid}/status").read_text("ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        rows = {"resident": "VmRSS", "private": "RssAnon", "peak": "VmHWM"}
        return {heading: int(found[field].split()[0]) * 1024 / 1e6 for heading, field in rows.items()}

    def api_bytes(self) -> float:
        """Bytes of bodies read from the API so far, as the agent counts them (compressed, where they are)."""
        before = self._page("/metrics")  # It is made at most once a second: this one may be older.
        wait_until(lambda: self._page("/metrics") != before, "a new page of metrics", every=0.25)
        for line in self._page("/metrics")[1].decode().splitlines():
            if line.startswith("nodeagent_api_read_bytes_total "):
                return float(line.split()[1])
        raise LookupError("the agent counts no bytes")

    def _is_ready(self) -> bool:
        try:
            return self._page("/readyz")[0] == HTTPStatus.OK
        except ConnectionRefusedError:
            return False

    def _page(self, path: str) -> tuple[int, bytes]:
        connection = HttpConnection(self.node, *_TELEMETRY)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def running(api: Api, hosts: Mapping[str, object] = MappingProxyType({})) -> Iterator[Daemon]:
    """Run an agent on a node without a trace of an earlier one, and clean up after it.

    Options of the section `hosts`, if given, replace those of the testbed's configuration.
    """
    node = api.world.node1
    config = api.world.tmp / "bench.yaml"
    _write_config(config, hosts)
    python = [sys.executable, "-c", _AS_IN_THE_IMAGE]
    environment = {"PYTHONPATH": str(ROOT), **api.environment}
    options = ["--config", str(config), "--node", node.name]
    process = node.popen([*python, "run", *options], log="nodeagent", env=environment)
    try:
        yield Daemon(node, process, config)
    finally:
        process.stop(SIGTERM)
        node.run([*python, "cleanup", "--config", str(config)], env=environment)
        node.run(["rm", "-rf", str(RUN_DIRECTORY)])


def _write_config(path: Path, hosts: Mapping[str, object]) -> None:
    """Write the testbed's configuration, with the benchmark's load balancer and limits beyond any size."""
    document = yaml.safe_load(NODEAGENT_CONFIG.read_text(encoding="utf-8"))
    listed = {"namespace": LB_NAMESPACE, "name": LB_NAME, "proxyProtocol": "v1"}
    document["loadBalancers"]["services"].append(listed)
    document["limits"] = {"hostnames": _ANY_NUMBER, "hostnamesPerNamespace": _ANY_NUMBER}
    document["hosts"].update(hosts)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
