"""Programs of the node, all started alike: also found in sbin, in the C locale, with a time limit."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import IO

# nft and iptables are in sbin, which an ordinary user's PATH lacks on Debian; a dry run needs them, too.
_SEARCH = "/usr/local/sbin:/usr/sbin:/sbin"


def find_program(name: str) -> str | None:
    """Return the path of a program; None if there is none."""
    return shutil.which(name, path=_path())


def run_program(
    command: Sequence[str],
    seconds: float,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    output: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, in the root directory.

    Args:
        command: Its path, as `find_program` returns it, and its arguments.
        seconds: After that it is killed.
        stdin: Its standard input: an open file; nothing by default.
        output: An open file that takes what it prints. For a program that leaves processes behind: a pipe
            would stay open as long as any of them.

    Returns:
        Its exit code, and without `output` its standard output and standard error; messages of the C library
        are in English.

    Raises:
        OSError: It could not be started.
        subprocess.TimeoutExpired: It did not end in time.
    """
    return subprocess.run(
        command,
        stdin=stdin,
        stdout=output or subprocess.PIPE,
        stderr=output or subprocess.PIPE,
        cwd="/",
        check=False,
        timeout=seconds,
        env={"LC_ALL": "C", "PATH": _path()},
    )


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:{_SEARCH}"
