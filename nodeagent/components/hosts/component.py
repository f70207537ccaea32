"""The hosts file as a component of the node: one managed block, last in the user's file. EFFECTS."""

import difflib
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from nodeagent.components.component import Component, Diff
from nodeagent.components.hosts import block, file
from nodeagent.components.hosts.block import HostsFile, Problem
from nodeagent.components.hosts.file import Reading
from nodeagent.errors import ApplyError, printable
from nodeagent.linux.inotify import ATTRIB, CLOSE_WRITE, FileEvents
from nodeagent.model.addresses import ByName, IPAddress, IPNetwork, sort_key
from nodeagent.model.decisions import some_notes
from nodeagent.model.desired import Desired, HostsLine
from nodeagent.model.facts import UserHostsLine

_TRIES = 5

How = Literal["rename", "in place"]


@dataclass(frozen=True)
class HostsState:
    """A hosts file, parsed as after an interrupted write; `lines`: those of nodeagent's last write."""

    path: Path
    reading: Reading = field(repr=False)
    file: HostsFile
    problems: tuple[Problem, ...]
    how: How
    lines: tuple[HostsLine, ...] | None = field(default=None, repr=False, compare=False)
    journal: bool = False
    unreadable = ""

    @property
    def content(self) -> bytes | None:
        return None if self.reading.stamp is None else self.reading.content

    @cached_property
    def user_names(self) -> Mapping[str, UserHostsLine]:
        return block.names_set(self.file.user, self.file.line_numbers)

    @cached_property
    def own_names(self) -> Mapping[str, frozenset[IPAddress]]:
        return block.addresses_by_name(self.file.block or b"")

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [(problem.line_number, problem.text) for problem in self.problems]
        for number, names in block.legacy_lines(self.file.user, self.file.line_numbers).items():
            notes.append((number, f"hairpin-proxy's old line for {', '.join(names)}; --adopt removes it"))
        return some_notes([f"{self.path}:{f'{number}:' if number else ''} {note}" for number, note in notes])


@dataclass(frozen=True, slots=True)
class HostsDiff(Diff):
    """The file as it would be written: `after` is None for no file, `added` and `removed` count lines."""

    before: HostsState
    after: bytes | None = field(repr=False)
    lines: tuple[HostsLine, ...] = field(repr=False)
    file: HostsFile = field(repr=False)
    added: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return self.before.journal or self.before.content != self.after

    @property
    def how(self) -> str:
        return "written in place: it is a mount" if self.before.how == "in place" else "replaced in one step"

    @property
    def text(self) -> str:
        """A unified diff in which nothing can control a terminal; not for patch(1)."""
        before = self.before.content
        return "".join(
            difflib.unified_diff(
                [*_shown(before or b"")],
                [*_shown(self.after or b"")],
                fromfile="/dev/null" if before is None else str(self.before.path),
                tofile="/dev/null" if self.after is None else str(self.before.path),
            )
        )

    def __str__(self) -> str:
        if not self:
            return ""
        if self.before.content == self.after:
            return f"the journal of an earlier write of {self.before.path} removed"
        counts = (("added", self.added), ("removed", self.removed))
        summary = ", ".join(f"{count} line{'s' * (count > 1)} {change}" for change, count in counts if count)
        summary = summary or "only the block, no hostname changed"
        return f"{self.before.path} written ({self.before.how}): {summary}"


class Hosts(Component[HostsState, HostsDiff]):
    """Implements `component.Component`: the managed block of one hosts file.

    Its lines are recognized by `own_networks`. `adopt` removes those that hairpin-proxy left. If not
    `enabled`, no lines are ever desired: a file that nodeagent never writes (a link, a device) is no error.
    """

    def __init__(
        self,
        path: Path,
        own_networks: Iterable[IPNetwork],
        state_dir: Path,
        *,
        adopt: bool,
        enabled: bool = True,
    ) -> None:
        file.guard_path(path)
        self._path = path
        self._own = block.OwnLines(tuple(own_networks))
        self._state_dir = state_dir
        self._adopt = adopt
        self._enabled = enabled
        self._latest: HostsState | None = None
        self._written: tuple[tuple[HostsLine, ...], bytes] = ((), b"")

    def read(self) -> HostsState:
        try:
            reading = file.read(self._path)
        except file.RefusedPathError:
            if self._enabled:
                raise
            return HostsState(self._path, Reading(b"", None), block.parse(b"", self._own), (), "rename")
        return self._state(reading, "in place" if file.is_mount_point(self._path) else "rename")

    def diff(self, actual: HostsState, desired: Desired, *, keep: bool = False) -> HostsDiff:
        """Return the difference; with `keep`, a name of the block keeps its lines."""
        own = actual.own_names if keep else {}
        if not own:
            return self._towards(actual, desired.hosts)
        new = (line for line in desired.hosts if line.name not in own)
        kept = (HostsLine(address, name) for name, addresses in own.items() for address in addresses)
        lines = tuple(sorted((*kept, *new), key=lambda line: (line.name, sort_key(line.address))))
        return self._towards(actual, actual.lines if actual.lines == lines else lines)

    def apply(self, diff: HostsDiff) -> str:
        """Apply it; if the file was edited since it was read, the edit stays."""
        for _ in range(_TRIES):
            try:
                self._write(diff)
            except file.ChangedMeanwhileError:
                diff = self._towards(self.read(), diff.lines)
            else:
                return ""
        raise ApplyError(
            f"{self._path} was changed by another program each of the {_TRIES} times that nodeagent tried "
            "to write it. nodeagent left it unchanged; the next pass tries again"
        )

    def watch(self) -> FileEvents:
        return FileEvents(self._path, ATTRIB | CLOSE_WRITE)  # a truncated file counts once it is written

    def _state(self, reading: Reading, how: How) -> HostsState:
        content = reading.content
        notes: tuple[Problem, ...] = ()
        write = file.load_journal(self._state_dir, self._path)
        if write is not None and content not in (write.old, write.new):
            problem = "a write was interrupted, and the file was edited since: it is kept as edited"
            if file.torn(write.old, write.new, content):
                content = write.new
                problem = "a write was interrupted: the next apply finishes it, nothing is lost"
            notes = (Problem(None, problem),)
        latest = self._latest
        journal = write is not None
        if latest is not None and not notes and not latest.problems and content == latest.reading.content:
            same = (reading, how, journal) == (latest.reading, latest.how, latest.journal)
            state = latest if same else replace(latest, reading=reading, how=how, journal=journal)
        else:
            parsed = block.parse(content, self._own)
            state = HostsState(self._path, reading, parsed, (*notes, *parsed.problems), how, journal=journal)
        self._latest = state
        return state

    def _towards(self, state: HostsState, lines: tuple[HostsLine, ...]) -> HostsDiff:
        if lines and state.lines is lines:
            return HostsDiff(state, state.content, lines, state.file)
        absent = state.file.absent or state.reading.stamp is None
        before = state.file.block or b""
        if differing := lines.since(state.lines) if isinstance(lines, ByName) else None:
            wanted = block.replaced(before.replace(b"\r\n", b"\n"), *differing)
            added, removed = block.count_changes(*map(block.written, differing))
        else:
            known, written = self._written
            wanted = written if lines is known else block.written(lines)
            added, removed = block.count_changes(before, wanted)
        self._written = lines, wanted
        after, parsed = block.assemble(state.file.user, wanted, adopt=self._adopt, absent=absent)
        nothing = absent and not after and state.how == "rename"
        if self._adopt:
            removed += state.file.user.count(b"\n") - block.without_legacy_lines(state.file.user).count(b"\n")
        return HostsDiff(state, None if nothing else after, lines, parsed, added, removed)

    def _write(self, diff: HostsDiff) -> None:
        before = diff.before.reading
        left: Reading | None = None
        if diff.before.content == diff.after:
            pass  # only the journal is left
        elif diff.after is None:
            left = file.delete(self._path, before)
        else:
            if diff.before.how == "rename":  # it may be mounted since, or there is no /proc to show it
                left = file.write_atomic(self._path, before, diff.after)
            left = left or file.write_in_place(self._path, before, diff.after, self._state_dir)
        file.drop_journal(self._state_dir, self._path)
        if left is not None and left.content == diff.after:
            self._latest = HostsState(self._path, left, diff.file, (), diff.before.how, diff.lines)


def _shown(content: bytes) -> Iterator[str]:
    for line in io.BytesIO(content).readlines():
        decoded = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        safe = "\t".join(printable(part) for part in decoded.split("\t"))
        yield safe + ("\n" if line.endswith(b"\n") else "\n\\ No newline at end of file\n")
