"""nodeagent on a node, run as the node's administrator would run it."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

from tests.testbed.errors import WorldError
from tests.testbed.forked import PYTHON
from tests.testbed.namespaces import Host
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG

RUN_DIRECTORY = Path("/run/nodeagent")
"""Where nodeagent keeps its files by default; every host of the world has a /run of its own."""

_ROOT = Path(__file__).parents[2]
_SEARCH = f"/usr/local/sbin:/usr/sbin:/sbin:{os.defpath}"
_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """What a command of nodeagent said, and the exit code by which it ended."""

    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit code {self.exit_code}\n{self.stdout}{self.stderr}"

    @property
    def text(self) -> str:
        return self.stdout + self.stderr

    @property
    def words(self) -> str:
        """Everything that was said, each space and line end as one space: lines are as wide as a terminal."""
        return " ".join(self.text.split())

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found


class Agent:
    """nodeagent for one node of the world; the fork server starts its commands, unless that is not wanted."""

    def __init__(
        self, host: Host, manifests: Path = MANIFESTS, config: Path = NODEAGENT_CONFIG, *, forked: bool = True
    ) -> None:
        self.host = host
        self.manifests = manifests
        self.config = config
        self._forked = forked

    def run(
        self, command: str, *options: str, without: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a command of nodeagent, which does not find the programs `without`."""
        args = [*self._command(command), *options]
        variables = {"PYTHONPATH": str(_ROOT)} | dict(env or {})
        with self._hidden(without):
            done = self.host.run(args, timeout=_SECONDS, check=False, env=variables, forked=self._forked)
        return Answer(done.returncode, done.stdout, done.stderr)

    def _command(self, name: str) -> list[str]:
        common = ["--config", self.config]
        if name != "cleanup":
            common += ["--manifests", self.manifests, "--node", self.host.name]
        return [*PYTHON, "nodeagent", name, *map(str, common)]

    plan = partialmethod(run, "plan")
    apply = partialmethod(run, "apply")
    status = partialmethod(run, "status")
    cleanup = partialmethod(run, "cleanup")

    @contextmanager
    def _hidden(self, programs: Sequence[str]) -> Iterator[None]:
        paths = []
        for program in programs:
            path = shutil.which(program, path=_SEARCH)
            if path is None:
                raise WorldError(f"{program} is not installed, so that it can't be hidden")
            paths.append(path)
        with ExitStack() as stack:
            for path in paths:
                self.host.run(["mount", "--bind", "/dev/null", path])
                stack.callback(self.host.run, ["umount", path])
            yield
