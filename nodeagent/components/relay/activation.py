"""How a HAProxy comes to run the configuration of its directory: by a reload, or a start. EFFECTS.

HAProxy's limits count in each process alone, and a reload leaves the one before with its connections. So
before one, those of all processes together are brought within the limit (`make_room`).
"""

import os
import re
import shutil
import time
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from nodeagent.components.relay import haproxy_config, haproxy_sockets, process
from nodeagent.components.relay.haproxy_sockets import Processes, Silence, Unreachable, Worker
from nodeagent.components.relay.ports import unbindable
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.errors import ApplyError
from nodeagent.linux.netlink import end_tcp, tcp_sockets
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Listener

# `reload` of 2.7 and newer answers only when the new worker is ready or has failed.
_RELOAD_SECONDS = 15.0
# HAProxy binds for two seconds before it gives up, so a failure shows well within this.
_ACTIVE_SECONDS = 10.0
_PAUSE_SECONDS = 0.002


def install(
    directory: RunDirectory,
    text: str,
    listeners: tuple[Listener, ...],
    drain_seconds: float,
    *,
    launch: bool,
) -> None:
    """Make HAProxy run this configuration; return when it does. Idempotent.

    If HAProxy rejects it, the earlier file is restored and the earlier worker continues. It is checked
    beforehand only if no HAProxy runs: a reload would reject it as well. Raises ApplyError.
    """
    haproxy = shutil.which("haproxy") if launch else None
    if haproxy is None and launch:
        raise ApplyError(
            "relay.launch is true but there is no haproxy program in PATH. The relay was left as it was. "
            "Install it (apt-get install haproxy)."
        )
    before = haproxy_sockets.read_processes(directory.master_socket)
    if haproxy is not None and isinstance(before, Unreachable):
        process.check(text, haproxy)
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
            process.stop(directory.config, drain_seconds)
        _start(directory, haproxy, text)
    elif listeners:
        raise ApplyError(
            f"no HAProxy answers at {before}. Its configuration is in {directory.config}, and it runs it "
            "when it starts."
        )


def _start(directory: RunDirectory, haproxy: str, text: str) -> None:
    # nodeagent's processes without a socket (something emptied the run directory): the new one takes over
    # their ports, then they end with their last connection.
    strays = process.running(directory.config)
    process.start(haproxy, directory.config, directory.master_socket)
    process.drain(strays, directory.config)
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
    found = haproxy_sockets.read_processes(directory.master_socket)
    if answer.refused or _has_failed(found, reloads):
        if previous is None:
            directory.config.unlink(missing_ok=True)
        else:
            directory.install(previous)
        haproxy = shutil.which("haproxy")
        if haproxy is not None and not answer.log:
            process.check(text, haproxy)  # Only this shows why HAProxy 2.6 and older reject a reload.
        problem = "HAProxy could not use its new configuration"
        lines = [f"{problem}; the earlier file was restored and the earlier process continues."]
        if words := process.complaints(answer.log):
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
    """Wait until the running worker reports this text's digest and its master answers; return whether so.

    After a reload, the master executes itself once more when the new worker serves, and its socket refuses
    connections meanwhile. When it answers, the old worker has stopped to listen. Gives up when the reload
    after `reloads` earlier ones is known to have failed. If the worker's answer is unusable all the time, the
    master's word counts.
    """
    digest = haproxy_config.digest(text)
    deadline = time.monotonic() + _ACTIVE_SECONDS
    serving: Worker | Unreachable = Unreachable(str(directory.stats_socket), Silence.ABSENT)
    while time.monotonic() < deadline:
        serving = haproxy_sockets.read_worker(directory.stats_socket)
        found = haproxy_sockets.read_processes(directory.master_socket)
        if _digest(serving) == digest and not isinstance(found, Unreachable):
            return True
        if reloads is not None and _has_failed(found, reloads):
            return False
        time.sleep(_PAUSE_SECONDS)
    if not isinstance(serving, Unreachable) or not serving.why.is_running:
        return False
    found = haproxy_sockets.read_processes(directory.master_socket)
    if isinstance(found, Unreachable) or not found.workers:
        return False
    return reloads is None or (found.reloads > reloads and not found.failed_reloads)


def _has_failed(found: Processes | Unreachable, reloads: int) -> bool:
    return not isinstance(found, Unreachable) and found.reloads > reloads and found.failed_reloads > 0


def _digest(worker: Worker | Unreachable) -> str | None:
    return worker.digest if isinstance(worker, Worker) else None


_COUNT_SECONDS = 5.0
_COUNT = re.compile(r"^CurrConns: (\d{1,9})$", re.MULTILINE)
# include/net/tcp_states.h: established, or closed by one side.
_OPEN = (1, 4, 5, 8)


def make_room(directory: RunDirectory, ranges: Iterable[IPNetwork], most: int) -> None:
    """Close connections, so that all processes of a HAProxy together have at most `most`. Raises OSError.

    The clients that have the most lose theirs, so what one holds costs no other a connection. By the kernel:
    HAProxy's own `shutdown session` waits until a client that reads nothing has read what is on its way.

    Only sockets of HAProxy's user count: any user of the node can bind sockets to a relay address and connect
    them to thousands of peers, and the share of each client would be none.
    """
    found = haproxy_sockets.read_processes(directory.master_socket)
    if isinstance(found, Unreachable) or not found.old_workers:
        return
    # The master's socket reaches each of them (management manual 9.4).
    pids = (*found.workers, *found.old_workers)
    infos = (
        haproxy_sockets.ask(directory.master_socket, f"@!{pid} show info", _COUNT_SECONDS) for pid in pids
    )
    counts = (_COUNT.search(info) for info in infos if not isinstance(info, Unreachable))
    if sum(int(count[1]) for count in counts if count) <= most:
        return
    held: dict[str, list[Any]] = {}
    for each in tcp_sockets(_OPEN):
        address = ip_address(each["idiag_src"])
        if each["idiag_uid"] == directory.owner and any(address in network for network in ranges):
            held.setdefault(each["idiag_dst"], []).append(each)
    share = fair_share(map(len, held.values()), most)
    end_tcp([each for sockets in held.values() for each in sockets[share:]])


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return how many each may have at most, so that all together have at most `most`. Pure."""
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        share = most // (len(ordered) - index)
        if count > share:
            return share
        most -= count
    return max(ordered, default=0)
