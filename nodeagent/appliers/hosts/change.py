"""A pending change of a hosts file as a value: what stands, what will stand, shown to a person. Pure."""

import difflib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nodeagent.appliers.hosts.block import Problem
from nodeagent.appliers.hosts.file import Stamp
from nodeagent.appliers.hosts.outside import LegacyLine
from nodeagent.model.desired import HostsLine
from nodeagent.printable import printable

How = Literal["rename", "in place"]


@dataclass(frozen=True, slots=True)
class HostsChange:
    """What would be written, and how; false when nothing is to do.

    `before` and `after` are None where the file is absent. `added`, `removed` and `moved` are the names that
    get lines, lose them, or change their address. `lines` is what was asked for, so that the change can be
    worked out anew from a file that was edited meanwhile.
    """

    path: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    how: How
    lines: tuple[HostsLine, ...] = field(repr=False)
    stamp: Stamp | None = field(repr=False)
    problems: tuple[Problem, ...] = ()
    legacy: tuple[LegacyLine, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """Give a unified diff for people, empty without a change.

        Bytes that are no UTF-8 and control characters are shown escaped, so that nothing in the file can
        steer a terminal. For reading, not for patch(1).
        """
        if not self:
            return ""
        return "".join(
            difflib.unified_diff(
                _shown(self.before or b""),
                _shown(self.after or b""),
                fromfile="/dev/null" if self.before is None else str(self.path),
                tofile="/dev/null" if self.after is None else str(self.path),
            )
        )


def _shown(content: bytes) -> list[str]:
    return [_shown_line(line) for line in io.BytesIO(content).readlines()]


def _shown_line(line: bytes) -> str:
    text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    safe = "\t".join(printable(part) for part in text.split("\t"))
    return safe + ("\n" if line.endswith(b"\n") else "\n\\ No newline at end of file\n")
