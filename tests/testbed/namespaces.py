"""A host: a process that does nothing, in network, mount and process namespaces of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.testbed.errors import WorldError, log_tail
from tests.testbed.forked import Forked
from tests.testbed.http import CurlResult, curl_command, curl_result
from tests.testbed.listening import listening_ports
from tests.testbed.processes import Process, children, kill_inside
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from tests.testbed.addresses import Address

# $1 is the host's /etc, $2 its name, $3 whether it supports IPv6. `cat` holds the namespaces open until its
# standard input, a pipe from the test process, is closed: by us, or by the kernel however the test process
# ends. As process 1 it also inherits orphans; with SIGCHLD ignored the kernel buries them.
_HOLD = """
set -eu
mount --bind -o ro /etc/alternatives "$1/alternatives"
mount --rbind "$1" /etc
mount -t tmpfs -o mode=0755,size=64m tmpfs /run
mkdir -m 1777 /run/lock
mount -t sysfs sysfs /sys
hostname "$2"
ipv6=/proc/sys/net/ipv6/conf
if [ "$3" = no ]; then
    # `all` is for the devices that stand, `default` for those to come.
    echo 1 >$ipv6/all/disable_ipv6
    echo 1 >$ipv6/default/disable_ipv6
else
    echo 1 >$ipv6/all/forwarding
    # Nobody else is on the cables: link-local addresses need not wait for a second.
    echo 0 >$ipv6/all/accept_dad
    echo 0 >$ipv6/default/accept_dad
fi
ip link set lo up
for key in ipv4/conf/all/send_redirects ipv4/conf/default/send_redirects; do
    echo 0 >/proc/sys/net/$key
done
echo 1 >/proc/sys/net/ipv4/ip_forward
if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then
    echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
fi
echo ready
# Ignored SIGCHLD lets the kernel reap orphans; a shell's trap does not (dash 0.5.12 leaves it at default).
exec env --ignore-signal=CHLD cat >/dev/null
"""
_UNSHARE = (
    *("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL"),
    *("--propagation", "private", "--mount-proc"),
)
# The machine's own environment (proxies above all) is not to reach into the world.
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_STOP_SECONDS = 5.0


class Host:
    """One machine of the world: start it, run programs in it, stop it.

    Args:
        name: Its host name.
        etc: The directory that becomes its /etc.
        logs: Where its programs' logs go.
        ipv6: Whether it supports IPv6; if not, IPv6 is switched off, even on `lo`.
    """

    def __init__(self, name: str, etc: Path, logs: Path, *, ipv6: bool = False) -> None:
        self.name = name
        self._ipv6 = ipv6
        self.etc = etc
        self._logs = logs
        self._holder: subprocess.Popen[bytes] | None = None
        self._processes: list[Process] = []
        self._pid = 0

    def __enter__(self) -> Self:
        self.launch()
        self.await_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def launch(self) -> None:
        """Begin to start, without waiting: `await_ready` does that."""
        with self.log_file("host").open("wb") as log:
            speaks = "yes" if self._ipv6 else "no"
            self._holder = subprocess.Popen(
                [*_UNSHARE, "--", "sh", "-c", _HOLD, "sh", str(self.etc), self.name, speaks],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_ENVIRONMENT,
                # Ctrl-C is for the test process alone: it takes the world down in order.
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Wait until programs can be run in the host.

        Raises:
            WorldError: The namespaces could not be made, with what was said about it.
        """
        holder = self._holder
        if holder is None or holder.stdout is None:
            raise WorldError(f"{self.name}: not launched")
        if holder.stdout.readline() != b"ready\n":
            raise WorldError(f"{self.name}: no namespaces{log_tail(self.log_file('host'))}")
        self._pid = children(holder.pid)[0]

    def stop(self) -> None:
        """End the host and everything in it; quiet when it never started."""
        if self._holder is None:
            return
        try:
            self._holder.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.communicate()
        self._holder = None
        for process in self._processes:
            process.wait()
        self._processes.clear()

    @property
    def pid(self) -> int:
        """The process that holds the namespaces, as the machine sees it."""
        if self._holder is None:
            raise WorldError(f"{self.name}: not running")
        return self._pid

    def enter(self, args: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs `args` in this host.

        The program is set to die with `nsenter`: who kills the one he sees kills the one he means.
        """
        nsenter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--pid", "--"]
        return [*nsenter, "setpriv", "--pdeathsig", "KILL", "--", *map(str, args)]

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
        """Run a program in this host until it ends.

        Args:
            args: The program and its arguments.
            timeout: Seconds after which it is killed.
            stdin: What it reads.
            check: Whether an exit code other than 0 is an error.
            env: Variables on top of the host's few.
            forked: Whether the fork server starts it, which then reads nothing: forkserver.py.

        Returns:
            Exit code, stdout and stderr.

        Raises:
            WorldError: It failed and `check` is set, or it took too long.
        """
        variables = _ENVIRONMENT | dict(env or {})
        with (
            Forked(self.pid, args, variables)
            if forked
            else subprocess.Popen(
                self.enter(args),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env=variables,
            )
        ) as outer:
            try:
                output, errors = outer.communicate(stdin, timeout)
            except subprocess.TimeoutExpired as error:
                raise WorldError(f"{self.name}: {args[0]} took longer than {timeout:g} s: {args}") from error
            finally:
                if outer.poll() is None:
                    kill_inside(outer)
        done = subprocess.CompletedProcess(list(map(str, args)), outer.wait(), output, errors)
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
        """Start a program in this host and leave it running; it ends with the host at the latest.

        Args:
            args: The program and its arguments.
            log: What to call its log file; the program's name when not given.
            env: Variables on top of the host's few.
            forked: Whether the fork server starts it: forkserver.py.

        Returns:
            The program: to be signalled, stopped, read.
        """
        path = self.log_file(log or Path(args[0]).name)
        variables = _ENVIRONMENT | dict(env or {})
        with path.open("ab") as output:
            outer = (
                Forked(self.pid, args, variables, output)
                if forked
                else subprocess.Popen(
                    self.enter(args),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    start_new_session=True,
                )
            )
        process = Process(outer, f"{Path(args[0]).name} in {self.name}", path)
        self._processes.append(process)
        return process

    def log_file(self, program: str) -> Path:
        """Say where a program's log is."""
        return self._logs / f"{self.name}-{program}.log"

    def await_port(self, port: int, process: Process, *, protocol: str = "tcp") -> None:
        """Wait until a program listens on a port.

        The kernel's table is asked, not the port: a connection would leave traces in logs that tests read.

        Raises:
            WorldError: The program ended, or did not listen in time, with the end of its log.
        """

        def listening() -> bool:
            process.check_running()
            return port in listening_ports(self.pid, protocol)

        try:
            wait_until(listening, f"{process.what} listening on {port}/{protocol}")
        except WorldError as error:
            raise WorldError(f"{error}{log_tail(process.log)}") from error

    def curl(  # noqa: PLR0913 - each is one thing a request can differ in
        self,
        url: str,
        *,
        resolve: Address | None = None,
        proxy_protocol: bool = False,
        timeout: float = 10.0,
        source: Address | None = None,
        extra: Sequence[str] = (),
    ) -> CurlResult:
        """Ask for a page, as a user of this host would.

        Args:
            url: What to ask for; its name is looked up in this host's hosts file and DNS.
            resolve: The address to use in place of looking the name up.
            proxy_protocol: Whether curl itself sends the PROXY header.
            timeout: Seconds for the whole request.
            source: The address to connect from.
            extra: Further options of curl.

        Returns:
            The answer; a failed request is a result, not an error.
        """
        command = curl_command(url, resolve, source, timeout, proxy_protocol=proxy_protocol)
        return curl_result(self.run([*command, *extra, url], timeout=timeout + 5, check=False))

    def read_hosts(self) -> bytes:
        """Read this host's /etc/hosts."""
        return (self.etc / "hosts").read_bytes()

    def write_hosts(self, content: bytes) -> None:
        """Overwrite this host's /etc/hosts in place."""
        (self.etc / "hosts").write_bytes(content)

    def network_namespace(self) -> int:
        """Return the number that identifies this host's network namespace."""
        return Path(f"/proc/{self.pid}/ns/net").stat().st_ino
