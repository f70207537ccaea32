"""The relay's files in its run directory: read as they are, replaced whole, removed."""

import os
from pathlib import Path
from stat import S_IMODE

from nodeagent.errors import ApplyError

_WRITABLE_BY_OTHERS = 0o022


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
        self._candidate = path / "haproxy.cfg.new"

    def read(self) -> str | None:
        """Return the configuration as it is, or None if there is none.

        Raises:
            ApplyError: it exists, but can't be read.
        """
        try:
            # HAProxy reads bytes; invalid UTF-8 is certainly not nodeagent's, and differs from it in any
            # case.
            return self.config.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
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
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._candidate, flags, 0o600), "w") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self._candidate.replace(self.config)
            self._sync()
        except OSError as error:
            raise ApplyError(
                f"{self.config} can't be written: {error}. The relay was left as it was."
            ) from error

    def restore(self, text: str | None) -> None:
        """Restore an earlier result of `read`."""
        if text is None:
            self.config.unlink(missing_ok=True)
        else:
            self.install(text)

    def remove(self) -> None:
        """Remove the relay's files, and the directory if it is then empty and not a mount point. Idempotent.

        Raises:
            ApplyError: a file can't be removed.
        """
        try:
            # HAProxy makes a unix socket under another name first (relay.sock.123.tmp); a crash may leave it.
            sockets = (*self.path.glob("*.sock"), *self.path.glob("*.sock.*"))
            for file in (self.config, self._candidate, *sockets):
                file.unlink(missing_ok=True)
            if self.path.is_dir() and not self.path.is_mount() and not any(self.path.iterdir()):
                self.path.rmdir()
        except OSError as error:
            raise ApplyError(f"the relay's files in {self.path} can't all be removed: {error}.") from error

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
