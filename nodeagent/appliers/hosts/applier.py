"""The applier of the hosts file: read what stands, work out the change, make it so."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from nodeagent.appliers.hosts import journal
from nodeagent.appliers.hosts.block import HostsFile, Problem, assemble, parse, written
from nodeagent.appliers.hosts.change import HostsChange, How
from nodeagent.appliers.hosts.errors import ChangedMeanwhileError, MountPointError
from nodeagent.appliers.hosts.file import Reading, delete, guard_path, read, write_atomic
from nodeagent.appliers.hosts.in_place import write_in_place
from nodeagent.appliers.hosts.mounts import is_mount_point
from nodeagent.appliers.hosts.outside import names_set
from nodeagent.appliers.hosts.own_lines import OwnLines
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress, IPNetwork
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import UserHostsLine

_TRIES = 5


@dataclass(frozen=True, slots=True)
class HostsState:
    """The hosts file as it stands: its bytes, taken apart, and what a person should know of it.

    `file` is parsed from the bytes as they will be once a write that a crash broke off is finished; mostly
    these are the bytes that stand.
    """

    path: Path
    reading: Reading = field(repr=False)
    file: HostsFile
    problems: tuple[Problem, ...]

    def outside_names(self) -> Mapping[str, UserHostsLine]:
        """Map each name that the user's own lines set to the line that does."""
        return names_set(self.file.user, self.file.line_numbers)

    def standing_names(self) -> Mapping[str, frozenset[IPAddress]]:
        """Map each name that the block holds to the addresses it is written with."""
        known: dict[str, frozenset[IPAddress]] = {}
        return {
            name: frozenset[IPAddress]().union(*(_as_address(text, known) for text in texts))
            for name, texts in _addresses(self.file.block or ()).items()
        }


class HostsApplier:
    """Keeps the managed block of one hosts file.

    Args:
        path: The file; its name must be `hosts`.
        own_networks: Where our addresses come from: the relay ranges, and the relay Service's ClusterIP.
        state_dir: A directory of our own for the journal of in-place writes; made when needed.
        adopt: Remove lines that hairpin-proxy left.

    Raises:
        RefusedPathError: the path is not that of a hosts file.
    """

    def __init__(
        self, path: Path, own_networks: Iterable[IPNetwork], state_dir: Path, *, adopt: bool
    ) -> None:
        guard_path(path)
        self._path = path
        self._own = OwnLines(tuple(own_networks))
        self._state_dir = state_dir
        self._adopt = adopt

    def read(self) -> HostsState:
        """Read the file as it stands; changes nothing, and needs no more right than to read it.

        Raises:
            ApplyError: the file can't be read, or is nothing that may be changed.
        """
        reading = read(self._path)
        content, notes = self._healed(reading.content)
        file = parse(content, self._own)
        return HostsState(self._path, reading, file, (*notes, *file.problems))

    def change(self, lines: Iterable[HostsLine]) -> HostsChange:
        """Work out what makes the file hold exactly `lines` of ours; without lines, no trace of us.

        Changes nothing. Once applied, the same question gives an empty change.

        Raises:
            ApplyError: the file can't be read, or a line can't be written to a hosts file.
        """
        wanted = tuple(lines)
        state = self.read()
        exists = state.reading.stamp is not None
        how: How = "in place" if is_mount_point(self._path) else "rename"
        absent = state.file.absent or not exists
        block = written(wanted)
        after: bytes | None = assemble(state.file.user, block, adopt=self._adopt, absent=absent)
        if absent and not after and how == "rename":
            after = None
        added, removed, moved = _names_changed(frozenset(state.file.block or ()), frozenset(block))
        return HostsChange(
            path=self._path,
            before=state.reading.content if exists else None,
            after=after,
            how=how,
            lines=wanted,
            stamp=state.reading.stamp,
            problems=state.problems,
            legacy=state.file.legacy,
            added=added,
            removed=removed,
            moved=moved,
        )

    def apply(self, change: HostsChange) -> HostsChange:
        """Make the change; idempotent.

        When another program edited the file since the change was worked out, it is worked out anew from
        the edited file, so that the edit stays.

        Returns:
            The change that was made: the one given, or the one worked out anew.

        Raises:
            ApplyError: the kernel refused, or the file kept changing; the text says what now stands.
        """
        for _ in range(_TRIES):
            try:
                self._make(change)
            except ChangedMeanwhileError:
                change = self.change(change.lines)
            else:
                return change
        raise ApplyError(
            f"{self._path} was changed by another program each of the {_TRIES} times it was to be written: "
            "something else keeps rewriting it. It was left to that program; the next pass tries again"
        )

    def _make(self, change: HostsChange) -> None:
        before = Reading(change.before or b"", change.stamp)
        if change and change.after is None:
            delete(self._path, before)
        elif change and change.after is not None:
            self._write(before, change.after, change.how)
        journal.drop(self._state_dir, self._path)

    def _write(self, before: Reading, after: bytes, how: How) -> None:
        if how == "rename":
            try:
                write_atomic(self._path, before, after)
            except MountPointError:
                pass  # mounted since, or no /proc to tell: the other way serves
            else:
                return
        write_in_place(self._path, before, after, self._state_dir)

    def _healed(self, current: bytes) -> tuple[bytes, tuple[Problem, ...]]:
        """Give the content to go on from: what a broken-off write was about to leave, if there was one."""
        unfinished = journal.load(self._state_dir, self._path)
        if unfinished is None:
            return current, ()
        match journal.standing(unfinished, current):
            case journal.Standing.TORN:
                text = "a write was broken off in its middle: the next apply finishes it, nothing is lost"
                return unfinished.new, (Problem(None, text),)
            case journal.Standing.FOREIGN:
                text = "a write was broken off and the file edited since: it is kept as it was edited"
                return current, (Problem(None, text),)
            case journal.Standing.UNTOUCHED | journal.Standing.COMPLETE:
                return current, ()


def _names_changed(old: AbstractSet[bytes], new: AbstractSet[bytes]) -> tuple[tuple[str, ...], ...]:
    """The names that get lines, lose them, and change their address, told by the few lines that differ."""
    if old == new:
        return (), (), ()
    touched = _addresses(old ^ new)
    # Other lines of these names, which stay; they are our own: `address<TAB>name`.
    staying = [line for line in old & new if line.rpartition(b"\t")[2].decode("ascii") in touched]
    before, after = _addresses([*staying, *(old - new)]), _addresses([*staying, *(new - old)])
    moved = (name for name in before.keys() & after.keys() if before[name] != after[name])
    return (
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        tuple(sorted(moved)),
    )


def _addresses(block: Iterable[bytes]) -> dict[str, set[str]]:
    """Read lines of a block; what a user wrote between the markers counts by its first field, too."""
    addresses: dict[str, set[str]] = {}
    for line in block:
        address, *names = line.partition(b"#")[0].decode("ascii", "backslashreplace").split() or [""]
        for name in names:
            addresses.setdefault(name, set()).add(address)
    return addresses


def _as_address(text: str, known: dict[str, frozenset[IPAddress]]) -> frozenset[IPAddress]:
    """The address, or nothing for what is none; few addresses bear many names, so each is read once."""
    if text not in known:
        try:
            known[text] = frozenset({ip_address(text)})
        except ValueError:
            known[text] = frozenset()
    return known[text]
