"""HAProxy's processes: started, found, ended, and made to run the configuration of their directory. EFFECTS.

A process is nodeagent's if its program is haproxy, its arguments name nodeagent's configuration file, and it
is in the same network namespace. A pid file could be stale; without one, a recycled pid is never mistaken for
nodeagent's process, and an HAProxy whose run directory was deleted is still found.

HAProxy's limits count in each process alone, and a reload leaves the one before with its connections. So
before one, those of all processes together are brought within the limit (`make_room`).
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

from nodeagent.components.relay import haproxy_config, haproxy_sockets
from nodeagent.components.relay.haproxy_sockets import Processes, Silence, Unreachable, Worker
from nodeagent.components.relay.ports import unbindable
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.errors import ApplyError
from nodeagent.linux.netlink import end_tcp, tcp_sockets
from nodeagent.linux.programs import run_program
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Listener

# `reload` of 2.7 and newer answers only when the new worker is ready or has failed.
_RELOAD_SECONDS = 15.0
# HAProxy binds for two seconds before it gives up, so a failure shows well within this.
_ACTIVE_SECONDS = 10.0
_CHECK_SECONDS = 10.0
# HAProxy tries to bind for two seconds before it gives up.
_START_SECONDS = 15.0
_TERMINATE_SECONDS = 2.0
_STDIN = "/proc/self/fd/0"
# A comma has a meaning in the -S option.
_PATH = re.compile(r"/[-./_A-Za-z0-9]+")
_PAUSE_SECONDS = 0.002
# Between two readings of /proc, each of which takes tens of milliseconds where hundreds of processes are.
_PROC_PAUSE_SECONDS = 0.02

_COUNT_SECONDS = 5.0
_COUNT = re.compile(r"^CurrConns: (\d{1,9})$", re.MULTILINE)
# include/net/tcp_states.h: established, or closed by one side.
_OPEN = (1, 4, 5, 8)


def install(
    directory: RunDirectory, text: str, listeners: tuple[Listener, ...], drain_seconds: float, *, launch: bool
) -> None:
    """Make HAProxy run this configuration; return when it does. Idempotent. Raises ApplyError.

    If HAProxy rejects it, the earlier file is restored and the earlier worker continues. It is checked
    beforehand only if no HAProxy runs: a reload would reject it as well.
    """
    haproxy = shutil.which("haproxy") if launch else None
    if haproxy is None and launch:
        raise ApplyError(
            "relay.launch is true but there is no haproxy program in PATH. The relay was left as it was. "
            "Install it (apt-get install haproxy)."
        )
    before = haproxy_sockets.read_processes(directory.master_socket)
    if haproxy is not None and isinstance(before, Unreachable):
        check(text, haproxy)
    previous = directory.read()
    if text != previous:
        directory.install(text)
    if not isinstance(before, Unreachable):
        worker = haproxy_sockets.read_worker(directory.stats_socket)
        # It may just not have been there when it was asked before.
        if text != previous or _digest(worker) != haproxy_config.digest(text):
            _reload(directory, text, previous, before.reloads, listeners)
    elif haproxy is not None:
        if before.why is Silence.LATE:
            # It hangs, and would continue to take its share of the new connections.
            stop(directory.config, drain_seconds)
        _start(directory, haproxy, text)
    elif listeners:
        raise ApplyError(
            f"no HAProxy answers at {before}. Its configuration is in {directory.config}, and it runs it "
            "when it starts."
        )


def _start(directory: RunDirectory, haproxy: str, text: str) -> None:
    # nodeagent's processes without a socket (something emptied the run directory): the new one takes over
    # their ports, then they end with their last connection.
    strays = running(directory.config)
    start(haproxy, directory.config, directory.master_socket)
    drain(strays, directory.config)
    if not _await_active(directory, text):
        raise ApplyError(
            f"HAProxy was started with {directory.config} but {directory.stats_socket} does not answer "
            f"within {_ACTIVE_SECONDS:.0f} s. It was left running; apply again."
        )


def _reload(
    directory: RunDirectory, text: str, previous: str | None, reloads: int, listeners: tuple[Listener, ...]
) -> None:
    answer = haproxy_sockets.reload_haproxy(directory.master_socket, _RELOAD_SECONDS)
    if isinstance(answer, Unreachable):
        raise ApplyError(
            f"Could not make HAProxy reload: {answer}. The new configuration is in {directory.config}, the "
            "earlier one is still active; apply again."
        )
    if not answer.refused and _await_active(directory, text, reloads):
        return
    master = haproxy_sockets.read_processes(directory.master_socket)
    if answer.refused or _has_failed(master, reloads):
        if previous is None:
            directory.config.unlink(missing_ok=True)
        else:
            directory.install(previous)
        haproxy = shutil.which("haproxy")
        if haproxy is not None and not answer.log:
            check(text, haproxy)  # Only this shows why HAProxy 2.6 and older reject a reload.
        problem = "HAProxy could not use its new configuration"
        lines = [f"{problem}; the earlier file was restored and the earlier process continues."]
        if words := complaints(answer.log):
            lines += ["It says:", words]
        if refused := unbindable(listener.bind for listener in listeners):
            lines.append("Can't be bound here:")
            lines += [f"{endpoint}: {os.strerror(reason)}" for endpoint, reason in refused]
        raise ApplyError("\n".join(lines))
    raise ApplyError(
        f"HAProxy was asked to reload but does not run {directory.config} after {_ACTIVE_SECONDS:.0f} s; "
        "what it ran before might still be active. Apply again; if that does not help, see HAProxy's log."
    )


def _await_active(directory: RunDirectory, text: str, reloads: int | None = None) -> bool:
    """Wait until the worker reports this text's digest and its master answers; return whether so.

    The master does not answer until the old worker has stopped to listen. Gives up when the reload after
    `reloads` earlier ones has failed. If the worker's answer stays unusable, the master's word counts.
    """
    digest = haproxy_config.digest(text)
    deadline = time.monotonic() + _ACTIVE_SECONDS
    serving: Worker | Unreachable = Unreachable(str(directory.stats_socket), Silence.ABSENT)
    while time.monotonic() < deadline:
        serving = haproxy_sockets.read_worker(directory.stats_socket)
        master = haproxy_sockets.read_processes(directory.master_socket)
        if _digest(serving) == digest and not isinstance(master, Unreachable):
            return True
        if reloads is not None and _has_failed(master, reloads):
            return False
        time.sleep(_PAUSE_SECONDS)
    if not isinstance(serving, Unreachable) or not serving.why.is_running:
        return False
    master = haproxy_sockets.read_processes(directory.master_socket)
    if isinstance(master, Unreachable) or not master.workers:
        return False
    return reloads is None or (master.reloads > reloads and not master.failed_reloads)


def _has_failed(master: Processes | Unreachable, reloads: int) -> bool:
    return not isinstance(master, Unreachable) and master.reloads > reloads and master.failed_reloads > 0


def _digest(worker: Worker | Unreachable) -> str | None:
    return worker.digest if isinstance(worker, Worker) else None


def make_room(directory: RunDirectory, ranges: Iterable[IPNetwork], most: int) -> None:
    """Close connections, so that all processes of an HAProxy together have at most `most`. Raises OSError.

    The clients that have the most lose theirs. By the kernel: HAProxy's own `shutdown session` waits until a
    client that reads nothing has read what is on its way. Only sockets of HAProxy's user count: any user of
    the node could bind thousands to a relay address.
    """
    master = haproxy_sockets.read_processes(directory.master_socket)
    if isinstance(master, Unreachable) or not master.old_workers:
        return
    # The master's socket reaches each of them (management manual 9.4).
    pids = (*master.workers, *master.old_workers)
    infos = (
        haproxy_sockets.ask(directory.master_socket, f"@!{pid} show info", _COUNT_SECONDS) for pid in pids
    )
    counts = (_COUNT.search(info) for info in infos if not isinstance(info, Unreachable))
    if sum(int(count[1]) for count in counts if count) <= most:
        return
    by_client: dict[str, list[Any]] = {}
    for connection in tcp_sockets(_OPEN):
        address = ip_address(connection["idiag_src"])
        if connection["idiag_uid"] == directory.owner and any(address in network for network in ranges):
            by_client.setdefault(connection["idiag_dst"], []).append(connection)
    share = fair_share(map(len, by_client.values()), most)
    end_tcp([connection for connections in by_client.values() for connection in connections[share:]])


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return how many each may have, so that all together have at most `most`. Pure."""
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        share = most // (len(ordered) - index)
        if count > share:
            return share
        most -= count
    return max(ordered, default=0)


def check(text: str, haproxy: str) -> None:
    """Let HAProxy check a configuration (management manual 3, -c). Raises ApplyError with its words."""
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
    """Raise ApplyError if HAProxy's hard limit of descriptors is too low (3.1, strict-limits)."""
    # Two per connection, splice pipe and listener; some per thread. A relay pod's runtime is the agent's.
    needed = 2 * (connections + 256 + listeners) + 512
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ApplyError(
            f"HAProxy needs up to {needed} file descriptors for {connections} connections and {listeners} "
            f"listeners, and its hard limit is {hard}. The relay was left as it was. "
            "Lower relay.maxConnections, or raise the limit (the container runtime's LimitNOFILE)."
        )


def start(haproxy: str, config: Path, master_socket: Path) -> None:
    """Start a master, which outlives this process. Raises ApplyError with HAProxy's words."""
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
    """Return the ids of all processes that nodeagent launched, masters and workers, also old ones."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return tuple(pid for pid in pids if _is_ours(pid, config))


def drain(pids: tuple[int, ...], config: Path) -> None:
    """Let these processes end with their last connection: a master passes SIGUSR1 on to its workers."""
    for pid in pids:
        status = _status(pid)
        if status and int(status[1]) not in pids:
            _signal(pid, config, signal.SIGUSR1)


def stop(config: Path, seconds: float) -> None:
    """End all that `running` finds, after `seconds` for open connections. Idempotent. Raises ApplyError."""
    drain(pids := running(config), config)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _gone(config, pids, seconds):
            return
        for pid in running(config):
            _signal(pid, config, number)
        seconds = _TERMINATE_SECONDS
    if _gone(config, pids, seconds):
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
        # An upgrade of the package adds the ending.
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


def _gone(config: Path, pids: tuple[int, ...], seconds: float) -> bool:
    """Wait until none is left, nor any of these: one that is ending has sockets still, but no program."""
    deadline = time.monotonic() + seconds
    left = {*pids}
    while left:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PROC_PAUSE_SECONDS)
        # A zombie has ended, although its parent has not collected it (proc_pid_stat(5)).
        left = {pid for pid in left if _status(pid)[:1] not in ([], ["Z"], ["X"])} | {*running(config)}
    return True


def _status(pid: int) -> list[str]:
    """Return a process's state, its parent's id, and so on (proc_pid_stat(5)); nothing if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return []
