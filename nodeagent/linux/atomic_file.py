"""Replacing a file whole: a new one is written next to it, and renamed over it."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COMPUTED_BY_KERNEL = frozenset({"security.ima", "security.evm"})
"""Checksums of the file's content and metadata: a copy of the old ones would make the new file invalid."""
_ACL = "system.posix_acl_access"


def replace_file(path: Path, content: bytes, *, durable: bool, mode: int = 0o600) -> None:
    """Replace the file, or a symbolic link, whole; it has this mode, whatever the umask. Idempotent."""
    with drafted(path, content, durable=durable, mode=mode) as draft:
        draft.rename(path)
    if durable:
        sync_directory(path.parent)


@contextmanager
def drafted(
    path: Path, content: bytes, *, durable: bool, mode: int = 0o600, like: Path | None = None
) -> Iterator[Path]:
    """Write a new file next to `path`, for the block to rename or link; afterwards, no draft is left.

    `durable`: it survives a power failure, which costs milliseconds. With `like`, it takes over that file's
    owner, mode and extended attributes (SELinux label, ACL).
    """
    remove_drafts(path)
    draft = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as file:  # noqa: PTH123 - pathlib opens no descriptors
            file.write(content)
            file.flush()
            if like is None:
                os.fchmod(file.fileno(), mode)
            else:
                _copy_metadata(like, file.fileno())
            if durable:
                os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(path: Path) -> None:
    """Remove what crashed runs left next to `path`. Idempotent."""
    for entry in path.parent.iterdir():
        if entry.name.startswith(_prefix(path)) and stat.S_ISREG(entry.lstat().st_mode):
            entry.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Flush a directory, so that a rename in it survives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prefix(path: Path) -> str:
    return f".{path.name}.nodeagent-"


def _copy_metadata(like: Path, target: int) -> None:
    source = os.open(like, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(source)
        # The owner first: chown(2) may clear mode bits and attributes. The mode last: it also sets the mask
        # of an ACL, which the attribute has.
        os.fchown(target, status.st_uid, status.st_gid)
        _copy_attributes(source, target)
        os.fchmod(target, stat.S_IMODE(status.st_mode))
    finally:
        os.close(source)


def _copy_attributes(source: int, target: int) -> None:
    wanted = _attributes(source)
    present = _attributes(target)
    # Equal ones are left unchanged: a label that the directory set already needs no right to relabel.
    for name, value in wanted.items() - present.items():
        try:
            os.setxattr(target, name, value)
        except OSError as error:
            # A security module's attribute may be left from a kernel that had it: only CAP_SYS_ADMIN may
            # write it (cap_inode_setxattr()). An active module says EACCES.
            if not name.startswith("security.") or error.errno not in {errno.EPERM, errno.EOPNOTSUPP}:
                raise
    if _ACL in present and _ACL not in wanted:
        os.removexattr(target, _ACL)  # from the directory's default ACL


def _attributes(descriptor: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # a file system without extended attributes
            return {}
        raise
    return {name: os.getxattr(descriptor, name) for name in names if name not in _COMPUTED_BY_KERNEL}
