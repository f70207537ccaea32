"""How a HAProxy comes to run the configuration of its directory: by a reload, or a start. EFFECTS."""

import os
import shutil
import time

from nodeagent.components.relay import haproxy_config, process
from nodeagent.components.relay.haproxy_sockets import (
    Processes,
    Silence,
    Unreachable,
    Worker,
    read_processes,
    read_worker,
    reload_haproxy,
)
from nodeagent.components.relay.ports import unbindable
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Listener

_ASK_SECONDS = 2.0
# `reload` of 2.7 and newer answers only when the new worker is ready or has failed.
_RELOAD_SECONDS = 15.0
# HAProxy binds for two seconds before it gives up, so a failure shows well within this.
_ACTIVE_SECONDS = 10.0
_PAUSE_SECONDS = 0.002


class Activation:
    """The HAProxy of a run directory, by its master's socket, or as a process that nodeagent launches.

    Args:
        directory: its run directory.
        drain_seconds: how long connections may continue when it is stopped.
        launch: whether nodeagent starts and stops it.
    """

    def __init__(self, directory: RunDirectory, drain_seconds: float, *, launch: bool) -> None:
        self._directory = directory
        self._drain_seconds = drain_seconds
        self._launch = launch

    def install(self, text: str, listeners: tuple[Listener, ...]) -> None:
        """Make HAProxy run this configuration; return when it does. Idempotent.

        A configuration that HAProxy rejects is not left in place: the earlier file is restored and the
        earlier worker continues. It is checked beforehand only if no HAProxy runs: a reload would reject it
        as well.

        Raises:
            ApplyError: the text says what is there now.
        """
        haproxy = shutil.which("haproxy")
        if haproxy is None and self._launch:
            raise ApplyError(
                "relay.launch is true but there is no haproxy program in PATH. The relay was left as it was. "
                "Install it (apt-get install haproxy)."
            )
        before = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if self._launch and isinstance(before, Unreachable) and haproxy is not None:
            process.check(text, haproxy)
        previous = self._directory.read()
        if text != previous:
            self._directory.install(text)
        if not isinstance(before, Unreachable):
            if text == previous and self._serves(text):
                return  # it was just not there when it was asked before
            self._reload(text, previous, before.reloads, listeners)
            return
        if haproxy is not None and self._launch:
            if before.why is Silence.LATE:
                # It hangs, and would continue to take its share of the new connections.
                process.stop(self._directory.config, self._drain_seconds)
            self._start(haproxy, text)
        elif listeners:
            raise ApplyError(
                f"no HAProxy answers at {before}. Its configuration is in {self._directory.config}, and it "
                "runs it when it starts."
            )

    def _serves(self, text: str) -> bool:
        worker = read_worker(self._directory.stats_socket, _ASK_SECONDS)
        return isinstance(worker, Worker) and worker.digest == haproxy_config.digest(text)

    def stop(self) -> None:
        """End the HAProxy that nodeagent launched, and remove its files. Errors as in `process.stop`."""
        process.stop(self._directory.config, self._drain_seconds)
        self._directory.remove()

    def _start(self, haproxy: str, text: str) -> None:
        # nodeagent's processes without a socket (something emptied the run directory): the new one takes over
        # their ports, then they end with their last connection.
        strays = process.running(self._directory.config)
        process.start(haproxy, self._directory.config, self._directory.master_socket)
        process.drain(strays, self._directory.config)
        if not self._await_active(text, _ACTIVE_SECONDS):
            raise ApplyError(
                f"HAProxy was started with {self._directory.config} but {self._directory.stats_socket} "
                f"does not answer within {_ACTIVE_SECONDS:.0f} s. It was left running; apply again."
            )

    def _reload(self, text: str, previous: str | None, reloads: int, listeners: tuple[Listener, ...]) -> None:
        answer = reload_haproxy(self._directory.master_socket, _RELOAD_SECONDS)
        if isinstance(answer, Unreachable):
            raise ApplyError(
                f"Could not make HAProxy reload: {answer}. The new configuration is in "
                f"{self._directory.config}, the earlier one is still active; apply again."
            )
        if not answer.refused and self._await_active(text, _ACTIVE_SECONDS, reloads):
            return
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if answer.refused or _has_failed(found, reloads):
            if previous is None:
                self._directory.config.unlink(missing_ok=True)
            else:
                self._directory.install(previous)
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
            f"HAProxy was asked to reload but does not run {self._directory.config} "
            f"after {_ACTIVE_SECONDS:.0f} s; what it ran before might still be active. "
            "Apply again; if that does not help, see HAProxy's log."
        )

    def _await_active(self, text: str, seconds: float, reloads: int | None = None) -> bool:
        """Wait until the running worker reports this text's digest and its master answers; return whether so.

        After a reload, the master executes itself once more when the new worker serves, and its socket
        refuses connections meanwhile, as that of a HAProxy that has ended. When it answers, the old worker,
        which shares sockets with the new one, has stopped to listen.

        Gives up after that many seconds, or when the reload after `reloads` earlier ones is known to have
        failed. If the worker's answer is unusable until then, the master's word counts.
        """
        digest = haproxy_config.digest(text)
        deadline = time.monotonic() + seconds
        serving: Worker | Unreachable = Unreachable(str(self._directory.stats_socket), Silence.ABSENT)
        while time.monotonic() < deadline:
            serving = read_worker(self._directory.stats_socket, _ASK_SECONDS)
            found = read_processes(self._directory.master_socket, _ASK_SECONDS)
            served = isinstance(serving, Worker) and serving.digest == digest
            if served and not isinstance(found, Unreachable):
                return True
            if reloads is not None and _has_failed(found, reloads):
                return False
            time.sleep(_PAUSE_SECONDS)
        if not isinstance(serving, Unreachable) or not serving.why.is_running:
            return False
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if isinstance(found, Unreachable) or not found.workers:
            return False
        return reloads is None or (found.reloads > reloads and not found.failed_reloads)


def _has_failed(found: Processes | Unreachable, reloads: int) -> bool:
    return not isinstance(found, Unreachable) and found.reloads > reloads and found.failed_reloads > 0
