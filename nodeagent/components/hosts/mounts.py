"""Whether a file is a mount point: then it can't be renamed over (EBUSY) and is written in place."""

import re
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-7]{3})")
_MOUNT_POINT_FIELD = 4


def is_mount_point(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Tell whether something is mounted on `path` itself, in this process's mount namespace.

    Without /proc nobody can tell: the answer is False, and the rename's EBUSY tells later.
    """
    real = bytes(path.parent.resolve() / path.name)
    try:
        content = mountinfo.read_bytes()
    except FileNotFoundError:
        return False
    return real in mount_points(content)


def mount_points(mountinfo: bytes) -> frozenset[bytes]:
    r"""Read the mount points out of a mountinfo file (proc(5), field 5; \040 and the like are octal)."""
    fields = (line.split(b" ") for line in mountinfo.splitlines())
    return frozenset(
        _OCTAL.sub(lambda escape: bytes([int(escape[1], 8)]), entry[_MOUNT_POINT_FIELD])
        for entry in fields
        if len(entry) > _MOUNT_POINT_FIELD
    )
