"""Programs of the node that only tell something: started, read, and never waited for longer than seconds."""

import os
import shutil
import subprocess

# These live in sbin, which an ordinary user's PATH lacks on Debian.
_SEARCH = "/usr/local/sbin:/usr/sbin:/sbin"
_SECONDS = 10.0
_DENIED = ("Operation not permitted", "Permission denied", "you must be root")


class Denied(Exception):  # noqa: N818 - it names what is the case
    """The program was refused by the kernel: it wants root."""


def said(*command: str) -> str | None:
    """Runs a program that changes nothing.

    Returns:
        Its standard output; None where there is no such program, or it ended with an error.

    Raises:
        Denied: it needs root.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{_SEARCH}"
    program = shutil.which(command[0], path=path)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={"LC_ALL": "C", "PATH": path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    if any(word in done.stderr.decode(errors="replace") for word in _DENIED):
        raise Denied(program)
    return None
