"""What can go wrong with a hosts file, told so that a person knows what stands now and what to do."""

import errno
from pathlib import Path

from nodeagent.errors import ApplyError

AS_IT_WAS = "The file was left as it was"


class ChangedMeanwhileError(ApplyError):
    """Another program changed the file between our reading and our writing; read it anew and try again."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was changed by another program in the meantime. {AS_IT_WAS}")


class MountPointError(ApplyError):
    """The file is a mount point: the kernel refuses to rename over it (EBUSY)."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is a mount point and can't be replaced by a rename. {AS_IT_WAS}")


class OrphanedMountError(ApplyError):
    """The mounted file has no name any more: what is written to it, no process of the host will see."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is mounted as a single file, and a program on the host has since replaced that file: "
            "this mount shows the old one, which no process of the host reads. Nothing was written. "
            "Restart the pod to see the new file; mount the directory (/etc) instead to prevent this"
        )


class RefusedPathError(ApplyError):
    """The path is nothing that may be rewritten: wrong name, a symbolic link, a directory, a device."""


def explained(error: OSError, path: Path, *, doing: str, state: str = AS_IT_WAS) -> ApplyError:
    """Turn an error of the kernel into one for a person.

    Args:
        error: What the kernel said.
        path: The hosts file it is about.
        doing: What failed, as in "can't {doing} /etc/hosts".
        state: What is now true of the file.
    """
    reason = error.strerror or str(error)
    code = errno.errorcode.get(error.errno or 0, "?")
    remedy = _REMEDIES.get(error.errno or 0, "")
    return ApplyError(f"can't {doing} {path}: {reason} ({code}). {state}{remedy}")


_REMEDIES = {
    errno.EROFS: ". Mount its directory writable, or set hosts.enabled: false (DNAT alone serves the node)",
    errno.EPERM: ". It may be immutable (lsattr shows 'i'; chattr -i removes that), or the agent lacks a "
    "capability (CAP_CHOWN, CAP_FOWNER, CAP_DAC_OVERRIDE)",
    errno.EACCES: ". nodeagent must run as root for this; a security module may also forbid it",
    errno.ENOSPC: ". Free some space on its file system; the next pass tries again",
    errno.EDQUOT: ". The quota of its file system is used up; the next pass tries again",
}
