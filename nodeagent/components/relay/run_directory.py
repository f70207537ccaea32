"""The relay's files in its run directory: read as they are, replaced whole, removed."""

import os
from errno import EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO
from pathlib import Path
from stat import S_IMODE, S_ISREG

from nodeagent.atomic_file import remove_drafts, replace_file
from nodeagent.errors import ApplyError

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
