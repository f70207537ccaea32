"""What of the node differs from the desired state, as `plan` and `status` show it; only reads."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import Struct

from nodeagent.components.component import COMPONENTS, ComponentName, Diff
from nodeagent.components.node import ActualState
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired
from nodeagent.observe.status import RelayStatus


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences or errors, by component; `written_names`: those of the hosts file (None: not read)."""

    changes: Mapping[ComponentName, Diff]
    errors: Mapping[ComponentName, str]
    written_names: frozenset[str] | None = None
    notes: tuple[str, ...] = ()
    relay: RelayStatus = field(default_factory=RelayStatus)

    @property
    def in_sync(self) -> bool:
        """Whether nothing is to do, and everything could be read."""
        return not self.changes and not self.errors


def compare(desired: Desired, actual: ActualState, *, from_nothing: bool = False) -> Comparison:
    """Work out the changes; with `from_nothing`, also of what this user is not permitted to read."""
    changes: dict[ComponentName, Diff] = {}
    errors: dict[ComponentName, str] = {}
    notes: list[str] = []
    for name in COMPONENTS:
        try:
            state = actual[name].state()
            change = actual[name].diff(desired, keep=desired.only_adds)
        except ApplyError as error:
            errors[name] = str(error)
            continue
        notes += state.notes
        if state.unreadable and not from_nothing:
            errors[name] = state.unreadable
        elif change:
            changes[name] = change
    names = None if "hosts" in errors else frozenset(actual.hosts.state().own_names)
    return Comparison(changes, errors, names, tuple(notes), serving_relay(actual))


def serving_relay(actual: ActualState) -> RelayStatus:
    """Return which HAProxy serves, as far as that can be read."""
    with suppress(ApplyError):  # the pass, or the comparison, reports it
        if serving := actual.relay.state().serving:
            return RelayStatus(serving.pod, serving.version)
    return RelayStatus()


class ListenerStatus(Struct, frozen=True, rename="camel"):
    """One relay listener of a served load balancer: its actual state on the node, as `status` shows it.

    `answers`: it is HAProxy's own socket, on an address that the node has. `redirected` are the load
    balancer's endpoints whose traffic DNAT sends here, null if the rules could not be read; `backend` is
    HAProxy's health check of the ingress controller, null if HAProxy reports none.
    """

    relay: str
    answers: bool
    redirected: tuple[str, ...] | None
    backend: str | None


def read_listener_status(desired: Desired, actual: ActualState) -> dict[Endpoint, ListenerStatus]:
    """Return the state of the desired listeners; what can't be read counts as missing."""
    ready = actual.ready(desired)
    health: Mapping[Endpoint, str] = {}
    redirects = None
    with suppress(ApplyError):
        health = actual.relay.ready(desired)
    with suppress(ApplyError):
        state = actual.dnat.state()
        redirects = None if state.unreadable else state.rules.redirects
    statuses = {}
    for bind in (listener.bind for listener in desired.listeners):
        sent = None if redirects is None else tuple(str(rule.match) for rule in redirects if rule.to == bind)
        statuses[bind] = ListenerStatus(str(bind), bind in ready, sent, health.get(bind) or None)
    return statuses
