"""HAProxy as a process: checking a configuration, starting it, finding and ending what was started.

A process is nodeagent's if its program is haproxy, its arguments name nodeagent's configuration file, and it
is in the same network namespace. A pid file could be stale; without one, a recycled pid is never mistaken for
nodeagent's process, and a HAProxy whose run directory was deleted is still found.
"""

import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from nodeagent.errors import ApplyError
from nodeagent.linux.programs import run_program

_CHECK_SECONDS = 10.0
# HAProxy tries to bind for two seconds before it gives up.
_START_SECONDS = 15.0
_TERMINATE_SECONDS = 2.0
_PAUSE_SECONDS = 0.005
_STDIN = "/proc/self/fd/0"
# A comma has a meaning in the -S option.
_PATH = re.compile(r"/[-./_A-Za-z0-9]+")


def check(text: str, haproxy: str) -> None:
    """Let HAProxy check a configuration (management manual 3, -c). Raises ApplyError with its own words."""
    try:
        done = run_program([haproxy, "-c", "-f", _STDIN], _CHECK_SECONDS, text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ApplyError(
            f"{haproxy} could not check the relay's configuration: {error}. The relay was left as it was."
        ) from error
    if done.returncode:
        words = complaints(done.stderr.decode(errors="replace")).replace(_STDIN, "haproxy.cfg")
        raise ApplyError(
            f"HAProxy rejects the relay's configuration; the active one was left as it was. It says:\n{words}"
        )


def check_descriptors(connections: int, listeners: int) -> None:
    """Check that HAProxy's hard limit of descriptors suffices, or it refuses to start (3.1, strict-limits).

    Two per connection, per splice pipe (256), and per listener (its socket and its check); some per thread. A
    relay pod's limit is not this process's, but it comes from the same container runtime.
    """
    needed = 2 * (connections + 256 + listeners) + 512
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ApplyError(
            f"HAProxy needs up to {needed} file descriptors for {connections} connections and {listeners} "
            f"listeners, and its hard limit is {hard}. The relay was left as it was. "
            "Lower relay.maxConnections, or raise the limit (the container runtime's LimitNOFILE)."
        )


def start(haproxy: str, config: Path, master_socket: Path) -> None:
    """Start a master and its worker, which outlive this process. Raises ApplyError with HAProxy's words."""
    directory = str(config.parent)
    if not _PATH.fullmatch(directory):
        raise ApplyError(
            f"relay.runDir: {directory!r} can't be used in HAProxy's options. The relay was left as "
            "it was. Use an absolute path of letters, digits, '.', '_' and '-'."
        )
    command = [haproxy, "-W", "-D", "-C", directory, "-S", f"{master_socket},mode,600", "-f", str(config)]
    with tempfile.TemporaryFile() as log:
        try:
            done = run_program(command, _START_SECONDS, output=log)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ApplyError(
                f"HAProxy could not be started: {error}. Nothing listens; {config} was kept."
            ) from error
        log.seek(0)
        words = complaints(log.read().decode(errors="replace"))
    if done.returncode:
        raise ApplyError(
            f"HAProxy did not start with {config}, so the relay does not listen. It says:\n{words}\n"
            "Remove the cause and apply again."
        )


def running(config: Path) -> tuple[int, ...]:
    """Return the process ids of all that nodeagent launched, masters and workers, also old ones."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return tuple(pid for pid in pids if _is_ours(pid, config))


def drain(pids: tuple[int, ...], config: Path) -> None:
    """Signal these processes to accept nothing more and to end with their last connection (SIGUSR1).

    A master passes it on to its workers (management manual 4).
    """
    for pid in pids:
        status = _status(pid)
        if status and int(status[1]) not in pids:
            _signal(pid, config, signal.SIGUSR1)


def stop(config: Path, seconds: float) -> None:
    """End all that `running` finds; nothing is left when it returns. Idempotent.

    Open connections get `seconds` to end by themselves. Raises ApplyError if a process survives SIGKILL.
    """
    drain(running(config), config)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _gone(config, seconds):
            return
        for pid in running(config):
            _signal(pid, config, number)
        seconds = _TERMINATE_SECONDS
    if _gone(config, seconds):
        return
    left = ", ".join(map(str, running(config)))
    raise ApplyError(
        f"HAProxy (process {left}) does not end, not even on SIGKILL. {config.parent} was left as it was."
    )


def complaints(log: str) -> str:
    """Return HAProxy's log without its notices about itself."""
    return "\n".join(line for line in log.splitlines() if line.strip() and not line.startswith("[NOTICE]"))


def _is_ours(pid: int, config: Path) -> bool:
    directory = Path("/proc", str(pid))
    try:
        # " (deleted)" follows the path after an upgrade of the package.
        if (directory / "exe").readlink().name.removesuffix(" (deleted)") != "haproxy":
            return False
        arguments = (directory / "cmdline").read_bytes().split(b"\0")
        same_network = (directory / "ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It ended meanwhile, or belongs to a user whose processes are not visible.
        return False
    return same_network and (b"-f", os.fsencode(config)) in pairwise(arguments)


def _signal(pid: int, config: Path, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if _is_ours(pid, config):
            os.kill(pid, number)


def _gone(config: Path, seconds: float) -> bool:
    """Wait until none is left. One that is ending has no program any more, but its sockets are still open."""
    deadline = time.monotonic() + seconds
    left = {*running(config)}
    while left:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
        # A zombie has ended, although its parent has not collected it (proc_pid_stat(5)).
        left = {pid for pid in left if _status(pid)[:1] not in ([], ["Z"], ["X"])} | {*running(config)}
    return True


def _status(pid: int) -> list[str]:
    """Return a process's state, its parent's id, and so on; nothing if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        # "12 (its name, which may hold anything) S 1 ...": proc_pid_stat(5)
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return []
