"""The hosts file as a component of the node: one managed block, last in the user's file. EFFECTS."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from nodeagent.components.component import ComponentName, Preview
from nodeagent.components.hosts.block import (
    BlockLines,
    ChangedNames,
    Problem,
    assemble,
    changed_names,
    names_and_addresses,
    parse,
)
from nodeagent.components.hosts.file import (
    ChangedMeanwhileError,
    MountPointError,
    Reading,
    RefusedPathError,
    delete,
    guard_path,
    is_mount_point,
    read,
    write_atomic,
)
from nodeagent.components.hosts.in_place import (
    WriteState,
    drop_journal,
    load_journal,
    write_in_place,
    write_state,
)
from nodeagent.components.hosts.lines import OwnLines
from nodeagent.components.hosts.state import HostsChange, HostsState, How
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Desired, HostsLine

_TRIES = 5


class Hosts:
    """Implements `component.Component`: the managed block of one hosts file.

    Args:
        path: The file; its name must be `hosts`.
        own_networks: The source of nodeagent's addresses: the relay ranges, and the relay Service's
            ClusterIP.
        state_dir: nodeagent's directory for the journal of in-place writes; made if needed.
        adopt: Remove lines that hairpin-proxy left.
        enabled: Whether hosts lines are ever desired. If not, a file that nodeagent never writes (a link, a
            device) has nothing of it, and is no error.

    Raises:
        RefusedPathError: the path does not name a hosts file.
    """

    name: ComponentName = "hosts"

    def __init__(
        self,
        path: Path,
        own_networks: Iterable[IPNetwork],
        state_dir: Path,
        *,
        adopt: bool,
        enabled: bool = True,
    ) -> None:
        guard_path(path)
        self._path = path
        self._own = OwnLines(tuple(own_networks))
        self._state_dir = state_dir
        self._adopt = adopt
        self._enabled = enabled
        self._latest: HostsState | None = None
        self._block = BlockLines()
        self._change: HostsChange | None = None

    def read(self) -> HostsState:
        """Read the file; changes nothing, and needs only the right to read it.

        A file with unchanged bytes is not parsed again.

        Raises:
            ApplyError: the file can't be read, or must not be changed.
        """
        try:
            reading = read(self._path)
        except RefusedPathError:
            if self._enabled:
                raise
            return HostsState(self._path, Reading(b"", None), parse(b"", self._own), (), "rename")
        how: How = "in place" if is_mount_point(self._path) else "rename"
        return self._state(reading, how)

    def diff(self, actual: HostsState, desired: Desired) -> HostsChange:
        """Return the change after which the file has exactly the desired lines; no trace without lines. Pure.

        Raises:
            ApplyError: a line can't be written to a hosts file.
        """
        return self._towards(actual, desired.hosts)

    def preview(self, change: HostsChange) -> Preview:
        """Return a unified diff. Pure."""
        in_place = change.before.how == "in place"
        return Preview(
            change.diff(), "written in place: it is a mount" if in_place else "replaced in one step"
        )

    def grow(self, change: HostsChange) -> HostsState:
        """Write the file, unless names are only removed. Idempotent.

        If another program edited the file since it was read, the change is computed again from the edited
        file, so that the edit stays.

        Raises:
            ApplyError: the kernel reported an error, or the file kept changing; the text says what it has
                now.
        """
        return self._apply(change) if change.growth or not change else change.before

    def shrink(self, change: HostsChange) -> HostsState:
        """Write the file; after `grow`, only removals of names are left. As `grow`."""
        return self._apply(change)

    def _state(self, reading: Reading, how: How) -> HostsState:
        content, notes = self._healed(reading.content)
        latest = self._latest
        if latest is not None and not notes and not latest.problems and content == latest.reading.content:
            state = latest if (reading, how) == (latest.reading, latest.how) else None
            state = state or replace(latest, reading=reading, how=how)
        else:
            file = parse(content, self._own)
            state = HostsState(self._path, reading, file, (*notes, *file.problems), how)
        self._latest = state
        return state

    def _towards(self, state: HostsState, lines: tuple[HostsLine, ...]) -> HostsChange:
        latest = self._change
        if latest is not None and latest.before is state and latest.lines is lines:
            return latest  # the other half of a pass
        if lines and state.lines is lines:
            return HostsChange(state, state.content, lines, ChangedNames())
        exists = state.reading.stamp is not None
        absent = state.file.absent or not exists
        known = state.lines is self._block.lines
        names = self._block.update(lines)
        block = self._block.content()
        if not known:
            before = names_and_addresses(state.file.block or b"")
            names = changed_names(before, names_and_addresses(block))
        after: bytes | None = assemble(state.file.user, block, adopt=self._adopt, absent=absent)
        if absent and not after and state.how == "rename":
            after = None
        self._change = HostsChange(state, after, lines, names)
        return self._change

    def _apply(self, change: HostsChange) -> HostsState:
        for _ in range(_TRIES):
            try:
                return self._make(change)
            except ChangedMeanwhileError:
                change = self._towards(self.read(), change.lines)
        raise ApplyError(
            f"{self._path} was changed by another program each of the {_TRIES} times that nodeagent tried "
            "to write it. nodeagent left it unchanged; the next pass tries again"
        )

    def _make(self, change: HostsChange) -> HostsState:
        before = change.before.reading
        left = before
        if change and change.after is None:
            left = delete(self._path, before)
        elif change and change.after is not None:
            left = self._write(before, change.after, change.before.how)
        drop_journal(self._state_dir, self._path)
        self._change = None
        if not change:
            return change.before
        state = self._state(left, change.before.how)
        if change.after == left.content:
            state = self._latest = replace(state, lines=change.lines)
        return state

    def _write(self, before: Reading, after: bytes, how: How) -> Reading:
        if how == "rename":
            try:
                return write_atomic(self._path, before, after)
            except MountPointError:
                pass  # mounted since, or no /proc to show it: the other way works
        return write_in_place(self._path, before, after, self._state_dir)

    def _healed(self, current: bytes) -> tuple[bytes, tuple[Problem, ...]]:
        """Return the content to start from: the target of an interrupted write, if there was one."""
        unfinished = load_journal(self._state_dir, self._path)
        if unfinished is None:
            return current, ()
        match write_state(unfinished, current):
            case WriteState.TORN:
                text = "a write was interrupted: the next apply finishes it, nothing is lost"
                return unfinished.new, (Problem(None, text),)
            case WriteState.FOREIGN:
                text = "a write was interrupted, and the file was edited since: it is kept as edited"
                return current, (Problem(None, text),)
            case WriteState.UNTOUCHED | WriteState.COMPLETE:
                return current, ()
