"""What stands on the node compared with what shall stand: one change, or one error, for each applier."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from nodeagent.agent.appliers import Appliers
from nodeagent.agent.parts import Part
from nodeagent.appliers.addresses.state import AddressChange
from nodeagent.appliers.dnat.change import DnatChange
from nodeagent.appliers.hosts.change import HostsChange
from nodeagent.appliers.relay import RelayChange
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired

_Change = TypeVar("_Change")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes, None where the applier failed to read; `errors` then holds its words, by applier."""

    addresses: AddressChange | None
    relay: RelayChange | None
    dnat: DnatChange | None
    hosts: HostsChange | None
    dnat_backend: str
    dnat_script: str
    errors: Mapping[Part, str]
    remarks: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Part, ...]:
        """The names of the appliers that have something to do."""
        changes: dict[Part, object] = {
            "addresses": self.addresses,
            "relay": self.relay,
            "dnat": self.dnat,
            "hosts": self.hosts,
        }
        return tuple(name for name, change in changes.items() if change)

    @property
    def written_names(self) -> frozenset[str] | None:
        """The names that the managed block of the hosts file holds now; None when it could not be read."""
        if self.hosts is None:
            return None
        desired = {line.name for line in self.hosts.lines}
        return frozenset((desired - set(self.hosts.added)) | set(self.hosts.removed))

    @property
    def in_sync(self) -> bool:
        """Whether nothing is to do and everything could be read."""
        return not self.pending and not self.errors


def compare(desired: Desired, appliers: Appliers) -> Comparison:
    """Reads what stands and works out the changes; changes nothing."""
    errors: dict[Part, str] = {}
    remarks: list[str] = []

    def attempt(name: Part, work: Callable[[], _Change]) -> _Change | None:
        try:
            return work()
        except ApplyError as error:
            errors[name] = str(error)
            return None

    def addresses() -> AddressChange:
        return appliers.addresses.change(appliers.addresses.read(), desired.addresses)

    def dnat() -> DnatChange:
        state = appliers.dnat.read()
        if state.unreadable:
            remarks.append(state.unreadable)
        return appliers.dnat.diff(state, desired)

    def hosts() -> HostsChange:
        change = appliers.hosts.change(desired.hosts)
        remarks.extend(hosts_remarks(change))
        return change

    dnat_change = attempt("dnat", dnat)

    def relay() -> RelayChange:
        change = appliers.relay.change(desired.listeners)
        remarks.extend(f"relay: {note}" for note in change.notes)
        return change

    return Comparison(
        addresses=attempt("addresses", addresses),
        relay=attempt("relay", relay),
        dnat=dnat_change,
        hosts=attempt("hosts", hosts),
        dnat_backend=appliers.dnat.backend,
        dnat_script=appliers.dnat.script(dnat_change) if dnat_change else "",
        errors=errors,
        remarks=tuple(remarks),
    )


def hosts_remarks(change: HostsChange) -> list[str]:
    """What a person should know of the hosts file besides the change: damaged markers, old lines."""
    found = [
        f"{change.path}:{problem.line_number}: {problem.text}"
        if problem.line_number
        else f"{change.path}: {problem.text}"
        for problem in change.problems
    ]
    found += [
        f"{change.path}:{line.line_number}: hairpin-proxy's old line for {', '.join(line.names)}; "
        "--adopt removes it"
        for line in change.legacy
    ]
    return found
