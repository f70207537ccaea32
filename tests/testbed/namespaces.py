"""A host: a process that does nothing, in network, mount and process namespaces of its own."""

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Self

from tests.isolation import unshare
from tests.testbed.addresses import Address
from tests.testbed.errors import WorldError
from tests.testbed.forked import Forked
from tests.testbed.http import CurlResult, curl_command, curl_results, resolving
from tests.testbed.inside import OF_A_HOST, furnish_host, inside
from tests.testbed.processes import InterruptPutOff, Process, Started

# It holds the namespaces until its standard input, a pipe from the test process, is closed: by the kernel,
# however the test process ends. As process 1 it also inherits orphans; with SIGCHLD ignored the kernel buries
# them.
_HOLD = ("env", "--ignore-signal=CHLD", "cat")
# The machine's own environment (proxies above all) is not to reach into the world.
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
# The world's end blocks them in the main thread, and another that hears them would have it interrupted.
_FOR_THE_MAIN_THREAD = {signal.SIGINT, signal.SIGTERM}
# The kernel's numbers for a TCP socket that listens and a UDP socket that is bound.
_LISTENS = {"tcp": "0A", "udp": "07"}
_CURL_SECONDS = 10.0


class Host:
    """One machine of the world; with `ipv6` unset, IPv6 is switched off, even on `lo`."""

    def __init__(self, name: str, etc: Path, logs: Path, *, ipv6: bool = False) -> None:
        self.name = name
        self._ipv6 = ipv6
        self.etc = etc
        self._logs = logs
        self._holder: subprocess.Popen[bytes] | None = None
        self._started: set[Started] = set()
        self._starter: ThreadPoolExecutor | None = None
        self._ready: Future[None] | None = None

    def __enter__(self) -> Self:
        self.launch()
        self.await_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def launch(self) -> None:
        self._starter = ThreadPoolExecutor(1, self.name)
        self._ready = self._starter.submit(self._make)

    def _make(self) -> None:
        """Take the thread into namespaces of its own: what it starts from now on is in the host."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_MAIN_THREAD)
        unshare(OF_A_HOST)
        self._holder = subprocess.Popen(
            _HOLD,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            # Ctrl-C is for the test process alone: it takes the world down in order.
            start_new_session=True,
        )
        furnish_host(self.etc, self.name, ipv6=self._ipv6)

    def await_ready(self) -> None:
        """Wait until programs can be run in the host; raises a WorldError that says why they can't."""
        if self._ready is None:
            raise WorldError(f"{self.name}: not launched")
        try:
            self._ready.result()
        except (OSError, subprocess.CalledProcessError) as error:
            raise WorldError(f"{self.name}: no namespaces: {error}") from error

    def stop(self) -> None:
        if self._starter is None:
            return
        # It waits for what was begun, and leaves the namespaces.
        self._starter.shutdown()
        self._starter = None
        if self._holder is None:
            return
        self._holder.kill()
        # Process 1 takes the others with it, and ends when all of them are buried.
        for started in self._started:
            started.wait()
        self._started.clear()
        self._holder.communicate()
        self._holder = None

    @property
    def pid(self) -> int:
        if self._holder is None:
            raise WorldError(f"{self.name}: not running")
        return self._holder.pid

    def enter(self, args: Sequence[str | Path]) -> list[str]:
        """Return the command line by which a person runs `args` in this host."""
        nsenter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--pid", "--"]
        return [*nsenter, *map(str, args)]

    def run(  # noqa: PLR0913 - each is one thing a start can differ in
        self,
        args: Sequence[str | Path],
        *,
        timeout: float = 30.0,
        stdin: str = "",
        check: bool = True,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in this host until it ends; if `forked`, the fork server starts it (forked.py).

        Raises a WorldError if it takes longer than `timeout` seconds or, unless `check` is off, fails.
        """
        with InterruptPutOff() as interrupt, self._start(args, env, forked=forked) as started:
            interrupt.kills(started)
            try:
                output, errors = started.communicate(stdin, timeout)
            except subprocess.TimeoutExpired as error:
                raise WorldError(f"{self.name}: {args[0]} took longer than {timeout:g} s: {args}") from error
            finally:
                started.kill()
        self._started.discard(started)
        done = subprocess.CompletedProcess(list(map(str, args)), started.wait(), output, errors)
        if check and done.returncode != 0:
            raise WorldError(f"{self.name}: {args} exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(
        self,
        args: Sequence[str | Path],
        *,
        log: str | None = None,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> Process:
        """Start a program, which ends with the host at the latest; without `log`, its log has its name."""
        path = self.log_file(log or Path(args[0]).name)
        with path.open("ab") as output, InterruptPutOff():
            started = self._start(args, env, forked=forked, log=output)
        return Process(started, f"{Path(args[0]).name} in {self.name}", path)

    def _start(
        self,
        args: Sequence[str | Path],
        env: Mapping[str, str] | None,
        *,
        forked: bool,
        log: BinaryIO | None = None,
    ) -> Started:
        """Start a program: with a log in a session of its own, without one for `communicate`."""
        if self._starter is None:
            raise WorldError(f"{self.name}: not running")
        variables = _ENVIRONMENT | dict(env or {})
        if forked:
            program = Forked(self.pid, args, variables, log)
            self._started.add(program)
            return program
        try:
            return self._starter.submit(self._popen, list(map(str, args)), variables, log).result()
        except FileNotFoundError as error:
            raise WorldError(f"{self.name}: {args}: {error}") from error

    def _popen(self, args: list[str], env: dict[str, str], log: BinaryIO | None) -> Started:
        # What is blocked here would be in the program, too.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_MAIN_THREAD)
        try:
            started = subprocess.Popen(
                args,
                stdin=subprocess.DEVNULL if log else subprocess.PIPE,
                stdout=log or subprocess.PIPE,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env=env,
                start_new_session=log is not None,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_MAIN_THREAD)
        # Here, because the waiting thread may hear Ctrl-C: what is not buried keeps the host from ending.
        self._started.add(started)
        return started

    def log_file(self, program: str) -> Path:
        return self._logs / f"{self.name}-{program}.log"

    def await_port(self, port: int, process: Process, *, protocol: str = "tcp") -> None:
        """Wait until a program listens on a port, without a connection: it would leave traces in logs."""
        process.await_that(lambda: port in self._listening_ports(protocol), f"listening on {port}/{protocol}")

    def _listening_ports(self, protocol: str) -> Iterator[int]:
        for table in (protocol, f"{protocol}6"):
            for line in Path(f"/proc/{self.pid}/net/{table}").read_text("ascii").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == _LISTENS[protocol]:
                    yield int(local.rpartition(":")[2], 16)

    def curl(
        self,
        url: str,
        *,
        resolve: Address | None = None,
        proxy_protocol: bool = False,
        timeout: float = _CURL_SECONDS,
        extra: Sequence[str] = (),
    ) -> CurlResult:
        """Ask for a page; with `proxy_protocol`, curl sends the header. A failed request is a result, too."""
        options = [*resolving(url, resolve), *(["--haproxy-protocol"] if proxy_protocol else []), *extra]
        return self.curl_all([(url, options)], timeout)[0]

    def curl_all(
        self, requests: Sequence[tuple[str, Sequence[str]]], timeout: float = _CURL_SECONDS
    ) -> list[CurlResult]:
        """Ask by one curl for pages that differ in name, port or address family, each with options."""
        command = curl_command(requests, timeout)
        done = self.run(command, timeout=timeout * len(requests) + 5, check=False)
        answers = curl_results(done.stdout)
        if len(answers) != len(requests):
            raise WorldError(f"{self.name}: {command}: {len(answers)} answers; {done.stderr}")
        return answers

    def connect(self, address: Address, port: int) -> socket.socket:
        with inside(self):
            return socket.create_connection((str(address), port), timeout=20)

    def read_hosts(self) -> bytes:
        return (self.etc / "hosts").read_bytes()

    def write_hosts(self, content: bytes) -> None:
        (self.etc / "hosts").write_bytes(content)

    def network_namespace(self) -> int:
        return Path(f"/proc/{self.pid}/ns/net").stat().st_ino
