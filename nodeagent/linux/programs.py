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
    command: Sequence[str], seconds: float, text: str = "", output: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program, by its path, to its end in the root directory. Raises OSError, or TimeoutExpired.

    Its standard input is a file in memory: with a pipe, an agent that is killed while it writes would leave
    nft a shorter script, and nft would run it. `output` is an open file for what is printed by a program that
    leaves processes behind: a pipe would stay open as long as any of them.
    """
    with os.fdopen(os.memfd_create("stdin"), "w+b") as standard_input:
        standard_input.write(text.encode())
        standard_input.seek(0)
        return subprocess.run(
            command,
            stdin=standard_input,
            stdout=output or subprocess.PIPE,
            stderr=output or subprocess.PIPE,
            cwd="/",
            check=False,
            timeout=seconds,
            env={"LC_ALL": "C", "PATH": _path()},
        )


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:{_SEARCH}"
