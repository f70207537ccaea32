"""HAProxy's run directory, and how it runs the configuration there: by a reload, or a start. EFFECTS."""

import os
import shutil
import time
from errno import EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO
from pathlib import Path
from stat import S_IMODE, S_ISREG

from nodeagent.components.relay import haproxy_config, process
from nodeagent.components.relay.haproxy_sockets import (
    Processes,
    Silence,
    Unreachable,
    read_digest,
    read_processes,
    reload_haproxy,
)
from nodeagent.components.relay.ports import unbindable
from nodeagent.errors import ApplyError
from nodeagent.linux.atomic_file import remove_drafts, replace_file
from nodeagent.model.desired import Listener

_WRITABLE_BY_OTHERS = 0o022
_LARGEST = 16 * 1024 * 1024
"""Bytes of a configuration that are read into memory: fifty times those of 10,000 listeners."""
_NOT_A_FILE = {ENOENT, ENOTDIR, ELOOP, EISDIR, ENXIO}


class RunDirectory:
    """The directory of the relay's configuration and sockets.

    Args:
        path: absolute; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "haproxy.cfg"
        self.master_socket = path / "master.sock"
        self.stats_socket = path / "relay.sock"

    def read(self) -> str | None:
        """Return the configuration as it is, or None if there is none.

        The relay's container can write here. A link, a FIFO or a file without end is not nodeagent's, and
        counts as none: it is neither followed nor waited for, and the next `install` replaces it.

        Raises:
            ApplyError: it exists, but can't be read.
        """
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self.config, flags), "rb") as file:  # noqa: PTH123 - pathlib has no such flags
                if not S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                content = file.read(_LARGEST + 1)
            # HAProxy reads bytes; invalid UTF-8 is certainly not nodeagent's, and differs from it in any
            # case.
            return None if len(content) > _LARGEST else content.decode(errors="replace")
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return None
            raise ApplyError(
                f"{self.config} can't be read: {error.strerror}. Run as root to see the actual state."
            ) from error

    def install(self, text: str) -> None:
        """Replace the configuration whole: after a crash, the file is the old or the new one. Idempotent.

        Raises:
            ApplyError: the directory is not safe to use, or the file can't be written; the old one stays.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
            if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
                raise ApplyError(
                    f"{self.path} belongs to user {status.st_uid} with mode {S_IMODE(status.st_mode):04o}: "
                    "others could change HAProxy's configuration. The relay was left as it was. Make the "
                    f"directory writable by this user alone (chown {os.geteuid()}, chmod 0700), "
                    "or set relay.runDir or relay.haproxyDir."
                )
            replace_file(self.config, text.encode(), durable=True)
        except OSError as error:
            raise ApplyError(
                f"{self.config} can't be written: {error}. The relay was left as it was."
            ) from error

    def remove(self) -> None:
        """Remove the relay's files, and the directory if it is then empty and not a mount point. Idempotent.

        Raises:
            ApplyError: a file can't be removed.
        """
        try:
            # HAProxy makes a unix socket under another name first (relay.sock.123.tmp); a crash may leave it.
            sockets = (*self.path.glob("*.sock"), *self.path.glob("*.sock.*"))
            for file in (self.config, *sockets):
                file.unlink(missing_ok=True)
            if not self.path.is_dir():
                return
            remove_drafts(self.config)
            if not self.path.is_mount() and not any(self.path.iterdir()):
                self.path.rmdir()
        except OSError as error:
            raise ApplyError(f"the relay's files in {self.path} can't all be removed: {error}.") from error


_ASK_SECONDS = 2.0
# `reload` of 2.7 and newer answers only when the new worker is ready or has failed.
_RELOAD_SECONDS = 15.0
# HAProxy binds for two seconds before it gives up, so a failure shows well within this.
_ACTIVE_SECONDS = 10.0
# A sidecar that waits for its configuration starts at once; a missing one never does.
_SIDECAR_SECONDS = 3.0
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
        if isinstance(before, Unreachable) and haproxy is not None:
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
        elif listeners and not self._await_active(text, _SIDECAR_SECONDS):
            raise ApplyError(
                f"no HAProxy answers at {before}. Nothing new is relayed. The configuration is in "
                f"{self._directory.config} and is active as soon as HAProxy runs with it: start the sidecar, "
                "or set relay.launch: true so that nodeagent starts HAProxy itself."
            )

    def _serves(self, text: str) -> bool:
        return read_digest(self._directory.stats_socket, _ASK_SECONDS) == haproxy_config.digest(text)

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
        serving: str | Unreachable = ""
        while time.monotonic() < deadline:
            serving = read_digest(self._directory.stats_socket, _ASK_SECONDS)
            found = read_processes(self._directory.master_socket, _ASK_SECONDS)
            if serving == digest and not isinstance(found, Unreachable):
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
