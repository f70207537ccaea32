"""Brings the node to the desired state, never pointing anything at a relay that is not ready.

The guard is part of DNAT's rules: it keeps other hosts from the relay, and so exists as long as anything may
listen. A component's failure stops only those steps that would break the order.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace

from msgspec import Struct

from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.components.node import ActualState, Applied, Components, UndoneError
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.decisions import DecisionStatus, LoadBalancerDecision, refused
from nodeagent.model.desired import Desired

ALL: frozenset[ComponentName] = frozenset(COMPONENTS)
_RELAY_DOWN = refused("RelayDown", "deferred: its relay does not answer")


class Repair(Struct, frozen=True):
    """A repair though nothing else was desired: what was seen, and the next delay in a conflict."""

    found: str
    delay: float = 0.0


@dataclass(slots=True)
class NodePass:
    """What one pass did, in order, and the failures, by component.

    `desired` is the plan as far as a relay is ready for it. `left_alone` are the components that were neither
    changed nor relied on, `blocking` those and the ones whose errors leave their state open; of these,
    another program reverted the `undone` at once. Of the `kept`, what is not desired was not yet to be
    removed. `waiting` are the namespaces whose load balancers count as they were.
    """

    desired: Desired
    left_alone: frozenset[ComponentName] = frozenset()
    changes: list[tuple[ComponentName, Applied]] = field(default_factory=list)
    errors: dict[ComponentName, str] = field(default_factory=dict)
    seconds: dict[ComponentName, float] = field(default_factory=dict)
    blocking: set[ComponentName] = field(default_factory=set)
    undone: set[ComponentName] = field(default_factory=set)
    kept: set[ComponentName] = field(default_factory=set)
    repairs: Mapping[ComponentName, Repair] = field(default_factory=dict)
    recovered: frozenset[ComponentName] = frozenset()
    waiting: frozenset[str] = frozenset()

    def failed(self, component: ComponentName, reason: str) -> None:
        """Note an error once."""
        earlier = self.errors.get(component, "")
        if reason not in earlier:
            self.errors[component] = f"{earlier}\n{reason}" if earlier else reason


def _guard(desired: Desired) -> Desired | None:
    guard = replace(desired.dnat, redirects=(), pods=())
    return replace(desired, dnat=guard) if guard else None


def _but_guard(desired: Desired) -> Desired:
    """Return the desired state with the guard: what it guards is removed later."""
    return replace(desired, dnat=replace(desired.dnat, leaving=not desired.dnat.guarded))


class _Step(Struct, frozen=True):
    """A change towards `aim`, unless the component or one of `unless` failed before; `keep` only adds."""

    component: ComponentName
    aim: Callable[[Desired], Desired | None] = lambda desired: desired
    unless: frozenset[ComponentName] = frozenset()
    keep: bool = False


_PREPARE = (_Step("dnat", _guard, keep=True), _Step("addresses", keep=True), _Step("relay", keep=True))
_POINT = (_Step("dnat", keep=True),)
# Something may still point at a listener that is to be removed: it stays until a pass succeeds.
_POINTING: frozenset[ComponentName] = frozenset({"dnat", "hosts"})
_ADD_LINES = (_Step("hosts", keep=True),)
_REMOVE = (
    _Step("hosts"),
    _Step("dnat", _but_guard),
    _Step("relay", unless=_POINTING),
    _Step("addresses", unless=ALL),
    _Step("dnat", unless=ALL),
)


def apply_plan(
    desired: Desired, actual: ActualState, left_alone: frozenset[ComponentName] = frozenset()
) -> NodePass:
    """Bring the node to the desired state but for what is `left_alone`; failures are returned. Idempotent."""
    done = NodePass(desired, left_alone, blocking={*left_alone}, kept={*ALL} if desired.only_adds else set())
    _run(_PREPARE, done, actual)
    _each(COMPONENTS, done, lambda name: actual[name].component.reserve(desired))
    ready = actual.ready(desired)
    waiting = {listener.bind for listener in desired.listeners} - ready
    if waiting:
        done.desired = defer_until_ready(desired, ready)
        binds = ", ".join(map(str, sorted(waiting, key=Endpoint.sort_key)))
        done.failed("relay", f"HAProxy does not listen on {binds}: until it does, nothing new points there")
    _run((*_POINT, *(_ADD_LINES if desired.only_adds else _REMOVE)), done, actual)
    return done


def out_of_reach(actual: ActualState) -> dict[ComponentName, str]:
    """Return why this user may not read, and so could not change, some components."""
    hidden: dict[ComponentName, str] = {}
    for name in COMPONENTS:
        with suppress(ApplyError):  # the pass reports it
            if why := actual[name].state().unreadable:
                hidden[name] = f"{why}; nothing was changed. Run as root, with CAP_NET_ADMIN"
    return hidden


def clean_up(components: Components) -> NodePass:
    """Remove nodeagent from the node, but nothing if this user can't read all of it. Idempotent.

    A component that fails keeps those after it, which it may still point at.
    """
    done = NodePass(Desired())
    actual = ActualState(components)
    done.errors.update(out_of_reach(actual))
    if done.errors:
        return done
    _run(_REMOVE, done, actual)
    if done.blocking & _POINTING:
        done.failed("relay", "kept, with its addresses: what could not be cleaned up might still point there")
    unhurt = (name for name in COMPONENTS if name not in done.errors)
    _each(unhurt, done, lambda name: actual[name].component.leave())
    return done


def _each(names: Iterable[ComponentName], done: NodePass, act: Callable[[ComponentName], None]) -> None:
    for name in names:
        try:
            act(name)
        except ApplyError as error:
            done.failed(name, str(error))


def _run(steps: Iterable[_Step], done: NodePass, actual: ActualState) -> None:
    for step in steps:
        name, aim = step.component, step.aim(done.desired)
        if aim is None or name in done.blocking:
            continue
        if step.unless & done.blocking:
            done.kept.add(name)
            continue
        began = time.monotonic()
        try:
            applied = actual[name].apply(aim, keep=step.keep)
        except ApplyError as error:
            done.blocking.add(name)
            done.failed(name, str(error))
            if isinstance(error, UndoneError):
                done.undone.add(name)
        else:
            if applied.failure:
                done.failed(name, applied.failure)
            if applied.text:
                done.changes.append((name, applied))
        done.seconds[name] = done.seconds.get(name, 0.0) + time.monotonic() - began


def defer_until_ready(desired: Desired, ready: AbstractSet[Endpoint]) -> Desired:
    """Return the plan without the redirects and hosts lines whose relay is not among `ready`. Pure.

    A hosts line affects every port: it waits until all listeners of its address answer. Those to a relay that
    is not this node's are kept.
    """
    silent = {listener.bind for listener in desired.listeners} - ready
    if not silent:
        return desired
    dead = {bind.address for bind in silent}
    hosts = tuple(line for line in desired.hosts if line.address not in dead)
    written = {line.name for line in hosts}
    redirects = tuple(redirect for redirect in desired.dnat.redirects if redirect.to not in silent)
    return replace(
        desired,
        dnat=replace(desired.dnat, redirects=redirects),
        hosts=hosts,
        load_balancers=tuple(_remark(decision, silent, ready) for decision in desired.load_balancers),
        names=tuple(
            replace(decision, conclusion=_RELAY_DOWN)
            if decision.status is DecisionStatus.SERVED and decision.name not in written
            else decision
            for decision in desired.names
        ),
    )


def _remark(
    decision: LoadBalancerDecision, silent: AbstractSet[Endpoint], ready: AbstractSet[Endpoint]
) -> LoadBalancerDecision:
    own = (bind for bind in silent if bind.address in decision.relay_addresses)
    missing = sorted(own, key=Endpoint.sort_key)
    if not missing:
        return decision
    partly = any(bind.address in decision.relay_addresses for bind in ready)
    deferred = (f"deferred: no relay answers at {bind}" for bind in missing)
    conclusion = decision.conclusion if partly else _RELAY_DOWN
    return replace(decision, conclusion=conclusion, remarks=(*decision.remarks, *deferred))
