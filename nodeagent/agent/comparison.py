"""The actual state compared with the desired state: one change, or one error, for each component."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.components.component import ComponentName, Preview
from nodeagent.components.hosts.change import HostsState
from nodeagent.components.node import ActualState
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes by component, true where something is to do; a component that can't be read has an error.

    `previews` are of the changes that are true. `written_names` are those that the managed block of the hosts
    file holds now; None when it could not be read. `notes` are what a person should know besides.
    """

    changes: Mapping[ComponentName, Any]
    previews: Mapping[ComponentName, Preview]
    errors: Mapping[ComponentName, str]
    dnat_backend: str
    written_names: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[ComponentName, ...]:
        """The names of the components that have something to do."""
        return tuple(name for name, change in self.changes.items() if change)

    @property
    def in_sync(self) -> bool:
        """Whether nothing is to do and everything could be read."""
        return not self.pending and not self.errors


def compare(desired: Desired, actual: ActualState) -> Comparison:
    """Work out the changes; changes nothing."""
    changes: dict[ComponentName, Any] = {}
    previews: dict[ComponentName, Preview] = {}
    errors: dict[ComponentName, str] = {}
    notes: list[str] = []
    names: frozenset[str] | None = None
    for component in actual.components:
        try:
            state = actual.of(component.name)
            notes += state.notes
            change = component.diff(state, desired)
        except ApplyError as error:
            errors[component.name] = str(error)
            continue
        changes[component.name] = change
        if change:
            previews[component.name] = component.preview(change)
        if isinstance(state, HostsState):
            names = frozenset(state.own_names)
    return Comparison(changes, previews, errors, actual.components.dnat.backend, names, tuple(notes))
