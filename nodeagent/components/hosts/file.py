"""A hosts file on disk: read it, replace it by a rename, or write it in place. Knows bytes, not the block.

Two windows remain for a program that writes the file in place, unlike editors and package managers: the
microseconds between the last comparison and the rename, and a pause between its truncation and its write
while nodeagent has a change of its own to write.

A file that is itself a mount point is written in place with a journal, for the death of the process; after a
power failure, /run is empty, and `block.parse` handles what is then between or around the markers.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from nodeagent.components.hosts.block import shared_prefix
from nodeagent.errors import ApplyError
from nodeagent.linux.atomic_file import drafted, replace_file, sync_directory
from nodeagent.typed_values import from_json

_AS_WAS = "The file was left as it was"

_REMEDIES = {
    errno.EROFS: ". Mount its directory writable, or set hosts.enabled: false (DNAT alone serves the node)",
    errno.EPERM: ". It may be immutable (lsattr shows 'i'; chattr -i removes that), or the agent lacks a "
    "capability (CAP_CHOWN, CAP_FOWNER, CAP_DAC_OVERRIDE)",
    errno.EACCES: ". nodeagent must run as root for this; a security module may also forbid it",
    errno.ENOSPC: ". Free some space on its file system; the next pass tries again",
    errno.EDQUOT: ". The quota of its file system is used up; the next pass tries again",
}

_LARGEST = 6 * 1024 * 1024
"""Bytes of a hosts file that are read: 150,000 lines. Of the shortest ones, each takes 250 of memory."""
_OPEN_TRIES = 5

Stamp = tuple[int, ...]
"""What distinguishes one state of a file from another without its content; the last one is its links."""
_JOURNAL = "hosts.journal"


class ChangedMeanwhileError(ApplyError):
    """Another program changed the file between nodeagent's read and write; read it and try again."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was changed by another program in the meantime. {_AS_WAS}")


class RefusedPathError(ApplyError):
    """The path must not be rewritten: wrong name, a symbolic link, a directory, a device."""


@contextmanager
def _explaining(path: Path, doing: str, state: str = _AS_WAS) -> Iterator[None]:
    """Turn an error of the kernel into one for a person: "can't {doing} {path}", and the file's state now."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        code = errno.errorcode.get(error.errno or 0, "?")
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise ApplyError(f"can't {doing} {path}: {reason} ({code}). {state}{remedy}") from error


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_nlink


class Reading(Struct, frozen=True):
    """A file as it was read; `stamp` is None if there was none (which glibc and musl both allow)."""

    content: bytes
    stamp: Stamp | None


def guard_path(path: Path) -> None:
    """Reject a path whose last part is not `hosts`, so that no configuration makes root rewrite any file."""
    if path.name != "hosts" or not path.is_absolute():
        raise RefusedPathError(
            f"hosts.file is {path}: nodeagent only writes to a file named hosts, given by its absolute "
            "path, so that no configuration can make it rewrite another file; nothing was changed. Correct it"
        )


def read(path: Path) -> Reading:
    """Read the file with its stamp. Raises RefusedPathError for what is no plain file, or ApplyError."""
    guard_path(path)
    with _explaining(path, "read"):
        for _ in range(_OPEN_TRIES):
            reading = _read_once(path)
            if reading.stamp is None or reading.stamp[-1] > 0:
                return reading
            # No name left: either another program replaced the file just now, then the path leads to the new
            # one, or the path still leads to the old one: a mount that kept it.
            with suppress(FileNotFoundError):
                if path.stat().st_nlink == 0:
                    raise ApplyError(
                        f"{path} is mounted as a single file, and a program on the host has since replaced "
                        "that file: this mount shows the old one, which no process of the host reads. "
                        "Nothing was written. Restart the pod to see the new file; mount the directory "
                        "(/etc) instead to prevent this"
                    )
    raise ChangedMeanwhileError(path)


def write_atomic(path: Path, before: Reading, after: bytes) -> Reading | None:
    """Replace the file in one step, and return what was left; None if it is a mount point (EBUSY).

    The new file takes over mode, owner and extended attributes (SELinux label, ACL). After a failure, the
    file is as it was, and nothing of this call remains: ChangedMeanwhileError, or another ApplyError.
    """
    guard_path(path)
    like = None if before.stamp is None else path
    with _explaining(path, "replace"):
        try:
            with drafted(path, after, durable=True, mode=0o644, like=like) as draft:
                stamp = _stamp_of(draft.stat())
                if read(path) != before:
                    raise ChangedMeanwhileError(path)
                if before.stamp is None:
                    path.hardlink_to(draft)  # unlike a rename, this never replaces a file made meanwhile
                else:
                    draft.rename(path)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return None
            # The file was deleted, or another nodeagent removed this draft as a leftover.
            lost = isinstance(error, FileNotFoundError) and path.parent.is_dir()
            if lost or isinstance(error, FileExistsError):
                raise ChangedMeanwhileError(path) from error
            raise
    _sync_directory(path)
    return Reading(after, stamp)


def delete(path: Path, before: Reading) -> Reading:
    """Delete the file; idempotent. Errors as in `write_atomic`."""
    if read(path) != before:
        raise ChangedMeanwhileError(path)
    with _explaining(path, "delete"):
        path.unlink(missing_ok=True)
    _sync_directory(path)
    return Reading(b"", None)


def _read_once(path: Path) -> Reading:
    # O_NONBLOCK: a FIFO of that name must not block the agent forever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return Reading(b"", None)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedPathError(
                f"{path} is a symbolic link to {path.readlink()}: on such a system (NixOS, Talos) the "
                f"system's own configuration creates the file. {_AS_WAS}. Set hosts.enabled: false (DNAT "
                "alone serves the node), or hosts.file to the target if that can be changed"
            ) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO"}
            kind = kinds.get(stat.S_IFMT(status.st_mode), "device or socket")
            raise RefusedPathError(
                f"{path} is not a regular file but a {kind}. {_AS_WAS}. Set hosts.file to the node's hosts "
                "file"
            )
        with open(descriptor, "rb", closefd=False) as file:
            # A buffer of its size costs a tenth of one of 16 MB. One byte more shows if it has grown since.
            content = file.read(min(status.st_size, _LARGEST) + 1)
            if len(content) > status.st_size:
                content += file.read(_LARGEST + 1 - len(content))
        if len(content) > _LARGEST:
            # A part of it must never count as the whole: the rest would be lost.
            raise RefusedPathError(
                f"{path} has more than {_LARGEST} bytes. {_AS_WAS}. Shorten it, or set hosts.enabled: false "
                "(DNAT alone serves the node)"
            )
        return Reading(content, _stamp_of(status))
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    state = "It has its new content, but a power failure now might restore the old one"
    with _explaining(path, "flush the directory of", state):
        sync_directory(path.parent)


def is_mount_point(path: Path) -> bool:
    """Return whether something is mounted on the file itself; False without /proc."""
    with suppress(FileNotFoundError):
        return _mount_of(path) != _mount_of(path.parent.resolve())
    return False


def _mount_of(path: Path) -> str:
    """Return the line of the kernel's number of the mount in which this is (proc(5), fdinfo)."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lines = Path("/proc/self/fdinfo", str(descriptor)).read_text(encoding="ascii").splitlines()
    finally:
        os.close(descriptor)
    return next(line for line in lines if line.startswith("mnt_id:"))


def write_in_place(path: Path, before: Reading, after: bytes, state_dir: Path) -> Reading:
    """Write `after` from where it differs on, with a journal. Raises ChangedMeanwhileError, ApplyError."""
    # What an earlier crash left to repair stays known until this write has succeeded.
    earlier = load_journal(state_dir, path)
    with _explaining(path, "write"):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        store_journal(state_dir, Journal(os.fsencode(path), before.content, after))
        if read(path) != before:
            _restore_journal(state_dir, path, earlier)
            raise ChangedMeanwhileError(path)
        _overwrite(descriptor, path, before.content, after)
        left = Reading(after, _stamp_of(os.fstat(descriptor)))
    except OSError:
        state = _AS_WAS
        # Usually there was no space to grow. The old bytes need none: their blocks belong to the file already
        # (except on a copy-on-write file system).
        try:
            _overwrite(descriptor, path, b"", before.content)
        except OSError:
            state = (
                "Its old content could not be restored either: it might hold parts of the old block and the "
                "new one. The journal is kept, so that the next pass can repair it"
            )
        else:
            _restore_journal(state_dir, path, earlier)
        with _explaining(path, "write", state):
            raise
    finally:
        os.close(descriptor)
    drop_journal(state_dir, path, "Its new content was written")
    return left


def _overwrite(descriptor: int, path: Path, old: bytes, new: bytes) -> None:
    """Make the content `new`; in one pwrite, unless the kernel accepts less than all of it at a time."""
    offset = shared_prefix(old, new)
    while offset < len(new):
        written = os.pwrite(descriptor, new[offset:], offset)
        if written == 0:
            raise OSError(f"the kernel wrote nothing to {path}")
        offset += written
    os.ftruncate(descriptor, len(new))
    os.fsync(descriptor)


class Journal(Struct, frozen=True):
    """A write in place: the file (its path as bytes), its content before and after."""

    path: bytes
    old: bytes
    new: bytes


def torn(old: bytes, new: bytes, current: bytes) -> bool:
    """Whether `current` is k bytes of `new`, then `old` from byte k on, for a k (generic_perform_write())."""
    if len(current) > len(old):
        return new.startswith(current)
    if len(current) < len(old):
        return current == new
    written = shared_prefix(current, new)
    return current[written:] == old[written:]


def load_journal(state_dir: Path, path: Path) -> Journal | None:
    """Read the journal of a write to `path`; None if there is none, or it is not visible."""
    with (
        _explaining(path, f"read {state_dir / _JOURNAL}, the journal of"),
        # What can't be decoded is not nodeagent's.
        suppress(FileNotFoundError, NotADirectoryError, PermissionError, msgspec.DecodeError),
    ):
        journal = from_json((state_dir / _JOURNAL).read_bytes(), Journal)
        return journal if journal.path == os.fsencode(path) else None
    return None


def store_journal(state_dir: Path, journal: Journal) -> None:
    """Put the journal on disk in place of any older one; makes `state_dir` if missing."""
    with _explaining(Path(os.fsdecode(journal.path)), f"write a journal in {state_dir} for"):
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(state_dir / _JOURNAL, msgspec.json.encode(journal), durable=True)


def drop_journal(state_dir: Path, path: Path, state: str = _AS_WAS) -> None:
    """Delete the journal of `path`; idempotent. `state` is the file's, for an error."""
    if load_journal(state_dir, path) is not None:
        with _explaining(path, f"delete {state_dir / _JOURNAL}, the journal of", state):
            (state_dir / _JOURNAL).unlink(missing_ok=True)


def _restore_journal(state_dir: Path, path: Path, earlier: Journal | None) -> None:
    if earlier is None:
        drop_journal(state_dir, path)
    else:
        store_journal(state_dir, earlier)
