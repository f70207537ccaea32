"""Writing a hosts file that is itself a mount point: in place, by the smallest write, with a journal."""

import os
from pathlib import Path

from nodeagent.components.hosts import journal
from nodeagent.components.hosts.errors import ChangedMeanwhileError, explained
from nodeagent.components.hosts.file import Reading, Stamp, read


def write_in_place(path: Path, before: Reading, after: bytes, state_dir: Path) -> Reading:
    """Write `after` over the file's content, from the first differing byte on, then cut it to length.

    Returns what was left.

    As the block stands last, the user's lines above it are not written at all. A journal in `state_dir`
    lets the next run finish a write that a crash broke off. Mode, owner and attributes stay: the file does.

    Raises:
        ChangedMeanwhileError: the file is not what `before` says any more.
        OrphanedMountError: the file was replaced on the host.
        ApplyError: the kernel refused; the error says what the file holds now.
    """
    with journal.exclusive(state_dir, path):
        # What an earlier crash left to heal stays known until this write has succeeded.
        earlier = journal.load(state_dir, path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise explained(error, path, doing="write") from error
        try:
            journal.store(state_dir, journal.Journal(path, before.content, after))
            if read(path) != before:
                journal.restore(state_dir, path, earlier)
                raise ChangedMeanwhileError(path)
            _overwrite(descriptor, path, before.content, after)
            left = Reading(after, Stamp.of(os.fstat(descriptor)))
        except OSError as error:
            _undo(descriptor, path, before.content, error)
            journal.restore(state_dir, path, earlier)
            raise explained(error, path, doing="write") from error
        finally:
            os.close(descriptor)
        journal.drop(state_dir, path)
        return left


def _overwrite(descriptor: int, path: Path, old: bytes, new: bytes) -> None:
    """Make the content `new`; in one pwrite, unless the kernel takes less than all of it at a time."""
    offset = journal.shared_prefix(old, new)
    while offset < len(new):
        written = os.pwrite(descriptor, new[offset:], offset)
        if written == 0:
            raise OSError(f"the kernel wrote nothing to {path}")
        offset += written
    os.ftruncate(descriptor, len(new))
    os.fsync(descriptor)


def _undo(descriptor: int, path: Path, old: bytes, cause: OSError) -> None:
    """Bring back the old content after a write failed, mostly for want of space to grow.

    The old bytes need none: their blocks are the file's already (but on a copy-on-write file system).
    """
    try:
        _overwrite(descriptor, path, b"", old)
    except OSError as error:
        state = (
            "Its old content could not be restored either: it might hold parts of the old block and the new "
            "one. The journal is kept, so that the next pass can repair it"
        )
        raise explained(cause, path, doing="write", state=state) from error
