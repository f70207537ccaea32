"""Commands on a node: by ssh, or by docker if the nodes are containers, as with kind."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The program itself failed, and not what it ran: ssh(1), `docker exec`.
_NOT_THERE = {"ssh": 255, "docker": 125}
_TIMED_OUT = 124


def ssh_command(config: Path, node: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command on a node as root.

    ssh hands the far shell one string: each word is quoted for it.

    Args:
        config: ssh's configuration, which knows the node by its name.
        node: The node.
        command: The command.
    """
    words = shlex.join(command)
    as_root = f'if [ "$(id -u)" = 0 ]; then exec {words}; else exec sudo -n -- {words}; fi'
    # Its own warnings are no part of what the command says.
    options = ("BatchMode=yes", "ConnectTimeout=10", "LogLevel=ERROR")
    return ["ssh", "-F", str(config), *(word for one in options for word in ("-o", one)), node, as_root]


def run_on_node(
    config: Path | None, node: str, command: Sequence[str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command on a node as root.

    Args:
        config: ssh's configuration; None if the node is a Docker container of its name.
        node: The node.
        command: The command.
        seconds: How long it may take; the node ends it then, so that nothing is left running there.

    Raises:
        WorldError: The node could not be reached, or the command took too long.
    """
    bounded = ["timeout", f"{seconds:g}", *command]
    words = ssh_command(config, node, bounded) if config else ["docker", "exec", node, *bounded]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 30,
        check=False,
    )
    if done.returncode == _NOT_THERE[words[0]]:
        raise WorldError(f"{node}: {words[0]}: {done.stderr.strip()}")
    if done.returncode == _TIMED_OUT:
        raise WorldError(f"{node}: {command[0]} took longer than {seconds:g} s: {list(command)}")
    return done
