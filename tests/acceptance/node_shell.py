"""Commands on a node, by whatever command line leads there: ssh, docker, nsenter, kubectl debug."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Final

from tests.testbed.errors import WorldError

PATIENCE: Final = int(os.environ.get("PATIENCE", "1"))
"""How many times what it takes on an ordinary machine anything may take."""
_TIMED_OUT = 124
NODE, COMMAND = "{node}", "{command}"


def on_node_words(template: str, node: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command on a node. Pure.

    Args:
        template: A command line. `{node}` is the node's name. The command's words follow the last word, or
            replace `{command}` as one string for a shell that is to take it apart, as ssh's does.
        node: The node.
        command: The command.
    """
    words = [word.replace(NODE, node).replace(COMMAND, shlex.join(command)) for word in shlex.split(template)]
    return words if COMMAND in template else [*words, *command]


def run_on_node(
    template: str, node: str, command: Sequence[str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command on a node as root.

    Args:
        template: What leads to a node, as above.
        node: The node.
        command: The command; it must not exit with more than 123.
        seconds: How long it may take; the node ends it then, so that nothing is left running there.

    Raises:
        WorldError: The node could not be reached, or the command took too long.
    """
    seconds *= PATIENCE
    words = on_node_words(template, node, ["timeout", f"{seconds:g}", *command])
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 30,
        check=False,
    )
    if done.returncode == _TIMED_OUT:
        raise WorldError(f"{node}: {command[0]} took longer than {seconds:g} s: {list(command)}")
    # What ssh (255), docker, a shell (126, 127) or a signal ends with: the command itself did not.
    if not 0 <= done.returncode < _TIMED_OUT:
        raise WorldError(f"{node}: {words[0]}: {done.stderr.strip() or done.returncode}")
    return done
