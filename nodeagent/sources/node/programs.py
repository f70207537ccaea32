"""Programs of the node that only tell something: started, read, and never waited for longer than seconds."""

import os
import shutil
import subprocess

# These live in sbin, which an ordinary user's PATH lacks on Debian.
_SEARCH = "/usr/local/sbin:/usr/sbin:/sbin"
_SECONDS = 10.0


def said(*command: str) -> str | None:
    """Runs a program that changes nothing.

    Returns:
        Its standard output; None where there is no such program, or it had nothing to tell (for want of
        permission, say).
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
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
