"""A Dockerfile, read as far as the tests need it: its stages and their packages."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ARG = re.compile(r"\$\{(\w+)\}")
_MOUNT = re.compile(r"^(--mount=\S+\s+)+")


@dataclass(frozen=True)
class Instruction:
    """One instruction: `RUN` and what follows it, without line breaks."""

    name: str
    value: str


@dataclass(frozen=True)
class Stage:
    """One stage: what it is built on, its name, its instructions in order."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def values(self, name: str) -> list[str]:
        """List what follows the instructions of a name."""
        return [found.value for found in self.instructions if found.name == name]

    @property
    def packages(self) -> list[str]:
        """The Debian packages that its RUN instructions install."""
        return [
            word
            for command in self._commands()
            if (words := shlex.split(command))[:2] == ["apt-get", "install"]
            for word in words[2:]
            if not word.startswith("-")
        ]

    def _commands(self) -> list[str]:
        runs = [_MOUNT.sub("", value) for value in self.values("RUN")]
        return [command.strip() for run in runs for command in run.split(" && ")]


def read_stages(file: Path) -> list[Stage]:
    """Read the stages of a Dockerfile in their order."""
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in _instructions(file.read_text(encoding="utf-8")):
        if instruction.name == "FROM":
            base, _, name = _ARG.sub(lambda match: arguments[match[1]], instruction.value).partition(" AS ")
            stages.append((base, name, []))
        elif stages:
            stages[-1][2].append(instruction)
        elif instruction.name == "ARG":
            name, _, default = instruction.value.partition("=")
            arguments[name] = default
    return [Stage(base, name, tuple(found)) for base, name, found in stages]


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [Instruction(*line.split(" ", 1)) for line in joined.splitlines()]
