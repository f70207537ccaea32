"""The actual state of a hosts file, and a change of it, shown to a person. Pure."""

import difflib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from nodeagent.components.hosts.block import ChangedNames, HostsFile, Problem, addresses_by_name
from nodeagent.components.hosts.file import Reading
from nodeagent.components.hosts.lines import names_set
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import UserHostsLine
from nodeagent.printable import printable

How = Literal["rename", "in place"]


@dataclass(frozen=True)
class HostsState:
    """A hosts file: its bytes, parsed, and how it has to be written.

    `file` is parsed from the bytes as they will be after an interrupted write is finished; mostly,
    these are the actual bytes. `problems` are what a person should know about it.
    `lines` are those for which the block was written, if the bytes are those that nodeagent left.
    """

    path: Path
    reading: Reading = field(repr=False)
    file: HostsFile
    problems: tuple[Problem, ...]
    how: How
    lines: tuple[HostsLine, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def content(self) -> bytes | None:
        """The bytes; None if there is no file."""
        return None if self.reading.stamp is None else self.reading.content

    @cached_property
    def user_names(self) -> Mapping[str, UserHostsLine]:
        """Map each name that the user's own lines set to that line."""
        return names_set(self.file.user, self.file.line_numbers)

    @cached_property
    def own_names(self) -> Mapping[str, frozenset[IPAddress]]:
        """Map each name of the block to its addresses."""
        return addresses_by_name(self.file.block or b"")

    @property
    def notes(self) -> tuple[str, ...]:
        """Damaged markers, and lines that hairpin-proxy left."""
        return (
            *(
                f"{self.path}:{problem.line_number}: {problem.text}"
                if problem.line_number
                else f"{self.path}: {problem.text}"
                for problem in self.problems
            ),
            *(
                f"{self.path}:{line.line_number}: hairpin-proxy's old line for {', '.join(line.names)}; "
                "--adopt removes it"
                for line in self.file.legacy
            ),
        )


@dataclass(frozen=True, slots=True)
class HostsChange:
    """What would be written; false if there is nothing to do.

    `after` is None for no file. `names` are those whose lines change. `lines` are the desired ones, so that
    the change can be computed again from a file that was edited meanwhile.
    """

    before: HostsState
    after: bytes | None = field(repr=False)
    lines: tuple[HostsLine, ...] = field(repr=False)
    names: ChangedNames

    def __bool__(self) -> bool:
        return self.before.content != self.after

    @property
    def growth(self) -> str:
        """All of it, unless names are only removed: a file is written once."""
        return "" if self._only_removes else self._summary

    @property
    def shrinkage(self) -> str:
        """All of it, if names are only removed."""
        return self._summary if self._only_removes else ""

    @property
    def _only_removes(self) -> bool:
        return bool(self.names.removed and not self.names.added and not self.names.moved)

    @property
    def _summary(self) -> str:
        if not self:
            return ""
        names = self.names
        counts = (("added", names.added), ("removed", names.removed), ("moved", names.moved))
        text = ", ".join(f"{len(each)} name{'s' * (len(each) > 1)} {what}" for what, each in counts if each)
        text = text or "only the block, no hostname changed"
        return f"{self.before.path} written ({self.before.how}): {text}"

    def diff(self) -> str:
        """Return a unified diff for people, empty without a change.

        Invalid UTF-8 and control characters are escaped, so that nothing in the file can
        control a terminal. For reading, not for patch(1).
        """
        if not self:
            return ""
        before = self.before.content
        return "".join(
            difflib.unified_diff(
                _shown(before or b""),
                _shown(self.after or b""),
                fromfile="/dev/null" if before is None else str(self.before.path),
                tofile="/dev/null" if self.after is None else str(self.before.path),
            )
        )


def _shown(content: bytes) -> list[str]:
    return [_shown_line(line) for line in io.BytesIO(content).readlines()]


def _shown_line(line: bytes) -> str:
    text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    safe = "\t".join(printable(part) for part in text.split("\t"))
    return safe + ("\n" if line.endswith(b"\n") else "\n\\ No newline at end of file\n")
