"""Brings the node to the desired state, never pointing anything at a relay that is not ready.

Adding: guard, addresses, relay, DNAT, hosts. Removing: the reverse. The guard is part of DNAT's rules: it
    keeps other hosts from the relay, and so exists as long as anything may listen. One component's failure
    does not stop the others, unless going on would break that order.

`compare` works out what would change, for `nodeagent plan` and `nodeagent status`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal

from msgspec import Struct

from nodeagent.components.component import COMPONENTS, Change, ComponentName, PartlyAppliedError, State
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.node import ActualState, Components, Known, ready_listeners
from nodeagent.components.relay.state import RelayState
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired, Listener
from nodeagent.plan.planner import defer_until_ready
from nodeagent.runtime.repair_conflicts import ConflictStatus

ALL: frozenset[ComponentName] = frozenset(COMPONENTS)

_Aim = Callable[[Desired, ActualState], Desired | None]
"""The target of one step, from the desired and the actual state; None for no step."""


class AppliedChange(Struct, frozen=True):
    """A change that was applied to the node: to which component, and what, for a person.

    `displaced`: it only moved nodeagent's rules before another program's again.
    """

    component: ComponentName
    text: str
    displaced: bool = False


class Repair(Struct, frozen=True):
    """Drift that was repaired: the trigger, and whether another program keeps reverting the repair."""

    found: str
    verdict: ConflictStatus


@dataclass(slots=True)
class NodePass:
    """What one pass did, in order, and the failures, by component.

    `desired` is the plan as far as a relay is ready for it: the rest says in its reasons that it waits.
    `ready` are the ready listeners. `left` are the states in which the components were left, if known, and
    only of those that were checked. `blocking` are those whose errors leave their state open. `seconds` is
    the duration of each.

    `components` were checked. An agent's passes also have the `repairs`, and the components that `recovered`:
    they had failed before.
    """

    desired: Desired
    ready: AbstractSet[Endpoint] = frozenset()
    changes: list[AppliedChange] = field(default_factory=list)
    errors: dict[ComponentName, str] = field(default_factory=dict)
    seconds: dict[ComponentName, float] = field(default_factory=dict)
    left: dict[ComponentName, State] = field(default_factory=dict)
    blocking: set[ComponentName] = field(default_factory=set)
    components: AbstractSet[ComponentName] = ALL
    repairs: Mapping[ComponentName, Repair] = field(default_factory=dict)
    recovered: AbstractSet[ComponentName] = frozenset()

    def failed(self, component: ComponentName, reason: str) -> None:
        """Take note of an error, once for each reason."""
        earlier = self.errors.get(component)
        if earlier is None:
            self.errors[component] = reason
        elif reason not in earlier:
            self.errors[component] = f"{earlier}\n{reason}"


def _guard(desired: Desired, actual: ActualState) -> Desired | None:
    """Return the guard alone, before anything listens that other hosts should not reach."""
    guard = replace(desired.dnat, redirects=(), pods=())
    if not guard:
        return None
    superseded = actual.dnat.state().superseded
    if superseded is not None and superseded[1].rules.redirects:
        # The other backend's guard is there, with redirects that hold until this one's take over.
        return None
    return replace(desired, dnat=guard)


def _but_guard(desired: Desired, actual: ActualState) -> Desired:
    """Return the desired state and the guard: what it guards is removed later."""
    if desired.dnat.guarded:
        return desired
    held = actual.dnat.state().rules
    return replace(desired, dnat=replace(desired.dnat, guarded=held.guarded, admitted=held.admitted))


def _reachable(desired: Desired, actual: ActualState) -> Desired:
    """Return the desired and actual listeners, except those without their address.

    HAProxy refuses a whole configuration if it can't bind a part of it.
    """
    held = frozenset(address.address for address in actual.addresses.state().ours)
    relay = actual.relay.state()
    actual.relay = Known(actual.components.relay, replace(relay, listeners=_on(held, relay.listeners)))
    return replace(desired, listeners=_on(held, desired.listeners))


def _on(held: AbstractSet[IPAddress], listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    return tuple(listener for listener in listeners if listener.bind.address in held)


class _Step(Struct, frozen=True):
    """One half of a change of one component; not made if one of `unless` has failed."""

    component: ComponentName
    half: Literal["grow", "shrink"]
    aim: _Aim = lambda desired, _: desired
    unless: frozenset[ComponentName] = frozenset()


_PREPARE = (
    _Step("dnat", "grow", _guard),
    _Step("addresses", "grow"),
    _Step("relay", "grow", _reachable),
)
# A step that failed a moment ago would fail again, and may have waited ten seconds for a lock.
_POINT = (
    _Step("dnat", "grow", unless=frozenset({"dnat"})),
    _Step("hosts", "grow"),
)
# Something may still point at a listener that is to be removed: it stays until a pass succeeds.
_POINTING: frozenset[ComponentName] = frozenset({"dnat", "hosts"})
_REMOVE = (
    _Step("hosts", "shrink", unless=frozenset({"hosts"})),
    _Step("dnat", "shrink", _but_guard, unless=frozenset({"dnat"})),
    _Step("relay", "shrink", _reachable, unless=_POINTING),
    _Step("addresses", "shrink", unless=ALL),
    _Step("dnat", "shrink", unless=ALL),
)


def converge(
    desired: Desired,
    actual: ActualState,
    components: AbstractSet[ComponentName] = ALL,
    ready: AbstractSet[Endpoint] | None = None,
) -> NodePass:
    """Bring the node to the desired state; idempotent: a second call finds nothing to do.

    Args:
        desired: The plan.
        actual: What is known of the node, and its components.
        components: Those to check; the others are assumed to be in the desired state.
        ready: The listeners known to be ready; None checks each.

    Returns:
        The result. Failures of components are in its `errors`; nothing is raised for them.
    """
    done = NodePass(desired, components=components)
    _run(_PREPARE if "relay" in components else _PREPARE[1:], done, actual, components)
    if ready is None:
        ready = ready_listeners(desired, actual)
        actual.components.relay.steer(ready)
    done.ready = ready
    done.desired = desired
    silent = {listener.bind for listener in desired.listeners} - ready
    if silent:
        # The new pod of an upgrade takes nothing away from the node while its own HAProxy is late or fails.
        served = actual.components.relay.served_by_another(silent)
        done.desired = defer_until_ready(desired, ready | served)
        for binds, meanwhile in ((silent - served, "nothing new points there"), (served, "another one does")):
            if binds:
                text = ", ".join(map(str, sorted(binds, key=Endpoint.sort_key)))
                done.failed("relay", f"HAProxy does not listen on {text}: until it does, {meanwhile}")
    _run((*_POINT, *_REMOVE), done, actual, components)
    return done


def clean_up(components: Components) -> NodePass:
    """Remove every trace of nodeagent from the node: hostnames first, addresses last. Idempotent.

    A component that fails keeps those after it, which it may still point at. A HAProxy that nodeagent
    launched is stopped, whatever the configuration says by now.
    """
    done = NodePass(Desired())
    components.relay.own_launched()
    actual = ActualState(components)
    _run(_REMOVE, done, actual, ALL)
    if done.blocking & _POINTING:
        done.failed("relay", "kept, with its addresses: what could not be cleaned up might still point there")
    elif "relay" not in done.errors:
        try:
            components.relay.leave()
        except ApplyError as error:
            done.failed("relay", str(error))
    return done


def _run(
    steps: Iterable[_Step], done: NodePass, actual: ActualState, components: AbstractSet[ComponentName]
) -> None:
    for step in steps:
        if step.component in components and not step.unless & done.blocking:
            began = time.monotonic()
            try:
                _make(step, done, actual)
            finally:
                spent = time.monotonic() - began
                done.seconds[step.component] = done.seconds.get(step.component, 0.0) + spent


def _make(step: _Step, done: NodePass, actual: ActualState) -> None:
    name = step.component
    displaced = False
    try:
        aim = step.aim(done.desired, actual)
        if aim is None:
            return
        half = actual[name].apply(step.half, aim)
        applied, displaced = half.text, half.displaced
    except PartlyAppliedError as error:
        applied = error.applied
        done.failed(name, str(error))
    except ApplyError as error:
        done.left.pop(name, None)
        done.blocking.add(name)
        done.failed(name, str(error))
        return
    done.left[name] = actual[name].state()
    if applied:
        done.changes.append(AppliedChange(name, applied, displaced))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes that are true, by component; one that can't be read has an error instead.

    `written_names` are those that the managed block of the hosts file has now; None if it could not be read.
    `notes` are what else a person should know. `hidden` is what this user is not permitted to read, and why;
    the change of such a component is the one from nothing.
    """

    changes: Mapping[ComponentName, Change[State, object]]
    errors: Mapping[ComponentName, str]
    dnat_backend: str
    written_names: frozenset[str] | None = None
    notes: tuple[str, ...] = ()
    hidden: Mapping[ComponentName, str] = field(default_factory=dict)

    def of_what_was_read(self) -> "Comparison":
        """Return the comparison in which what is hidden has an error, and no change that may be wrong."""
        changes = {name: change for name, change in self.changes.items() if name not in self.hidden}
        return replace(self, changes=changes, errors={**self.errors, **self.hidden})

    @property
    def pending(self) -> tuple[ComponentName, ...]:
        """The names of the components with something to do."""
        return tuple(self.changes)

    @property
    def in_sync(self) -> bool:
        """Whether nothing is to do and everything could be read."""
        return not self.pending and not self.errors


def compare(desired: Desired, actual: ActualState) -> Comparison:
    """Work out the changes; change nothing."""
    changes: dict[ComponentName, Change[State, object]] = {}
    errors: dict[ComponentName, str] = {}
    notes: list[str] = []
    hidden: dict[ComponentName, str] = {}
    for name in COMPONENTS:
        try:
            state = actual[name].state()
            change = actual[name].change(desired)
        except ApplyError as error:
            errors[name] = str(error)
            continue
        notes += state.notes
        if isinstance(state, RelayState | DnatState) and state.unreadable:
            hidden[name] = state.unreadable
        if change:
            changes[name] = change
    names = None if "hosts" in errors else frozenset(actual.hosts.state().own_names)
    return Comparison(changes, errors, actual.components.dnat.backend, names, tuple(notes), hidden)
