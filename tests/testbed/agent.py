"""nodeagent on a node, run as the node's administrator would run it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.testbed.errors import WorldError
from tests.testbed.forked import PYTHON
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.testbed.namespaces import Host

RUN_DIRECTORY = Path("/run/nodeagent")
"""Where nodeagent keeps its files by default; every host of the world has a /run of its own."""

_ROOT = Path(__file__).parents[2]
_SEARCH = f"/usr/local/sbin:/usr/sbin:/sbin:{os.defpath}"
_SECONDS = 60.0
# $1 says how many programs follow that are to be missing; what is left is the command.
_HIDE = """
set -eu
count=$1
shift
while [ "$count" -gt 0 ]; do
    mount --bind /dev/null "$1"
    shift
    count=$((count - 1))
done
exec "$@"
"""


@dataclass(frozen=True)
class Answer:
    """What a command of nodeagent said, and the exit code by which it ended."""

    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        """Show it whole: this is what a failed assertion prints."""
        return f"exit code {self.exit_code}\n{self.stdout}{self.stderr}"

    @property
    def text(self) -> str:
        """Everything that was said."""
        return self.stdout + self.stderr

    @property
    def document(self) -> dict[str, Any]:
        """What was said, as `-o json` says it."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


class Agent:
    """nodeagent for one node of the world.

    Args:
        host: The node.
        manifests: The API objects that it is to know.
        config: Its configuration.
        forked: Whether the fork server starts its commands.
    """

    def __init__(
        self,
        host: Host,
        manifests: Path = MANIFESTS,
        config: Path = NODEAGENT_CONFIG,
        *,
        forked: bool = True,
    ) -> None:
        self.host = host
        self.manifests = manifests
        self.config = config
        self._forked = forked

    def plan(self, *options: str) -> Answer:
        """Run `nodeagent plan`."""
        return self.run("plan", *options)

    def apply(self, *options: str, without: Sequence[str] = ()) -> Answer:
        """Run `nodeagent apply`, if wanted on a node that lacks some programs."""
        return self.run("apply", *options, without=without)

    def status(self, *options: str) -> Answer:
        """Run `nodeagent status`."""
        return self.run("status", *options)

    def cleanup(self) -> Answer:
        """Run `nodeagent cleanup`."""
        return self.run("cleanup")

    def run(
        self,
        command: str,
        *options: str,
        without: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run a command of nodeagent; a failed one is an answer too, not an error.

        Args:
            command: Its name.
            options: More of them than objects, configuration and node.
            without: Programs that the command is not to find.
            env: Variables on top of the host's few.

        Returns:
            What it said.
        """
        args = [*hidden(without), *self._command(command), *options]
        variables = {"PYTHONPATH": str(_ROOT)} | dict(env or {})
        forked = self._forked and not without
        done = self.host.run(args, timeout=_SECONDS, check=False, env=variables, forked=forked)
        return Answer(done.returncode, done.stdout, done.stderr)

    def _command(self, name: str) -> list[str]:
        common = ["--manifests", self.manifests, "--config", self.config, "--node", self.host.name]
        return [*PYTHON, "nodeagent", name, *map(str, common)]


def hidden(programs: Sequence[str]) -> list[str]:
    """Return the beginning of a command line that runs the rest of it where programs are missing.

    Args:
        programs: Their names.

    Returns:
        Nothing where nothing is to be missing.
    """
    if not programs:
        return []
    paths = [shutil.which(program, path=_SEARCH) for program in programs]
    if None in paths:
        raise WorldError(f"not all installed, so that they can't be hidden: {programs}")
    found = [path for path in paths if path is not None]
    return ["unshare", "--mount", "--", "sh", "-c", _HIDE, "sh", str(len(found)), *found]
