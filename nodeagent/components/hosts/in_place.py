"""Writing a hosts file that is itself a mount point: in place, by the smallest write, with a journal.

The journal notes what a write is about to do, until it is done, so that a crash can be repaired. It is in the
agent's own directory and is itself replaced atomically. It covers the death of the process; after a power
failure, /run is empty, and `block.parse` handles what is then between or around the markers.
"""

import os
from bisect import bisect_left
from pathlib import Path

import msgspec
from msgspec import Struct

from nodeagent.components.hosts.file import (
    AS_IT_WAS,
    ChangedMeanwhileError,
    Reading,
    explained,
    read,
    stamp_of,
)
from nodeagent.linux.atomic_file import replace_file
from nodeagent.typed_values import from_json


def write_in_place(path: Path, before: Reading, after: bytes, state_dir: Path) -> Reading:
    """Write `after` from the first differing byte on, cut the file to length; return what was left.

    Since the block is last, the user's lines above it are not written at all. With a journal in `state_dir`,
    the next run can finish a write that a crash interrupted. Mode, owner and attributes stay, as the file
    does.

    Raises:
        ChangedMeanwhileError: the file differs from `before`.
        ApplyError: the kernel reported an error, or the file was replaced on the host; the text says what
            it has now.
    """
    # What an earlier crash left to repair stays known until this write has succeeded.
    earlier = load_journal(state_dir, path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise explained(error, path, doing="write") from error
    try:
        store_journal(state_dir, Journal(os.fsencode(path), before.content, after))
        if read(path) != before:
            restore_journal(state_dir, path, earlier)
            raise ChangedMeanwhileError(path)
        _overwrite(descriptor, path, before.content, after)
        left = Reading(after, stamp_of(os.fstat(descriptor)))
    except OSError as error:
        # Mostly there was no space to grow. The old bytes need none: their blocks belong to the file already
        # (except on a copy-on-write file system).
        try:
            _overwrite(descriptor, path, b"", before.content)
        except OSError:
            state = (
                "Its old content could not be restored either: it might hold parts of the old block and the "
                "new one. The journal is kept, so that the next pass can repair it"
            )
            raise explained(error, path, doing="write", state=state) from error
        restore_journal(state_dir, path, earlier)
        raise explained(error, path, doing="write") from error
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


_NAME = "hosts.journal"


class Journal(Struct, frozen=True):
    """A write in place: the file (its path as bytes), its content before and after."""

    path: bytes
    old: bytes
    new: bytes


def torn(old: bytes, new: bytes, current: bytes) -> bool:
    """Return whether `current` is a state of overwriting `old` by `new` from front to back, then truncating.

    That is: for some k, the first k bytes of `new`, then `old` from byte k on. Both ends count as such
    states. The kernel copies a write page by page in order and may stop between pages on SIGKILL
    (generic_perform_write).
    """
    if len(current) > len(old):
        return new.startswith(current)
    if len(current) < len(old):
        return current == new
    written = shared_prefix(current, new)
    return current[written:] == old[written:]


def shared_prefix(one: bytes, other: bytes) -> int:
    """Return the number of leading bytes that are the same in both."""
    ends = range(min(len(one), len(other)))
    return bisect_left(ends, x=True, key=lambda end: one[: end + 1] != other[: end + 1])


def load_journal(state_dir: Path, path: Path) -> Journal | None:
    """Read the journal of a write to `path`; None if there is none or it is not visible.

    An ordinary user at a dry run may not read the directory and sees none.
    """
    try:
        data = (state_dir / _NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise explained(error, path, doing=f"read {state_dir / _NAME}, the journal of") from error
    try:
        journal = from_json(data, Journal)
    except msgspec.DecodeError:
        return None  # not nodeagent's
    return journal if journal.path == os.fsencode(path) else None


def store_journal(state_dir: Path, journal: Journal) -> None:
    """Put the journal on disk, durably, in place of any older one; makes `state_dir` (0700) if missing.

    Raises:
        ApplyError: the kernel reported an error; the hosts file was not touched.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(state_dir / _NAME, msgspec.json.encode(journal), durable=True)
    except OSError as error:
        path = Path(os.fsdecode(journal.path))
        raise explained(error, path, doing=f"write a journal in {state_dir} for") from error


def drop_journal(state_dir: Path, path: Path, state: str = AS_IT_WAS) -> None:
    """Delete the journal of `path`, if there is one; idempotent. `state` is the file's, for an error."""
    if load_journal(state_dir, path) is None:
        return
    try:
        (state_dir / _NAME).unlink(missing_ok=True)
    except OSError as error:
        raise explained(
            error, path, doing=f"delete {state_dir / _NAME}, the journal of", state=state
        ) from error


def restore_journal(state_dir: Path, path: Path, earlier: Journal | None) -> None:
    """Make `earlier` the journal of `path` again, or have none; idempotent."""
    if earlier is None:
        drop_journal(state_dir, path)
    else:
        store_journal(state_dir, earlier)
