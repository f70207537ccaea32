"""Kubernetes Events for what an administrator must know: which, on which Service, and how they are posted."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

from nodeagent.model.desired import DecisionStatus, Desired, NameDecision
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.transition_log import TransitionLog, in_turn
from nodeagent.printable import shown_name
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import post_event

_NAMES_SHOWN = 5

# What a hostname's owner or an administrator can act on; that excludes a wildcard, a disabled hosts file, and
# servers that don't answer: they differ from node to node, and metrics report them.
EVENT_NAME_CODES = frozenset(
    {
        "NotVerified",
        "NoSuchName",
        "NoDnsAddress",
        "NeverWritten",
        "BadName",
        "Conflict",
        "TooManyHostnames",
        "TooManyHostnamesInNamespace",
    }
)


_WAITING = frozenset({"NotAskedYet", "KeptUnasked"})


class PendingEvent(Struct, frozen=True):
    """One Event: about which Service (`kubectl describe` finds it by `uid`), its reason, and the message."""

    service: ObjectRef
    code: str
    message: str
    uid: str = ""


def pending_events(desired: Desired) -> tuple[PendingEvent, ...]:
    """Return the rejections, in few Events.

    One for each load balancer, and one for each kind of rejected hostnames.

    Every node uses the same words, so that one Event serves all. Only a port that another program
    holds concerns one node.
    """
    found = []
    for one in desired.load_balancers:
        if one.status is DecisionStatus.REFUSED:
            found.append(PendingEvent(one.load_balancer, one.code, one.reason, one.uid))
        elif one.taken and one.status is DecisionStatus.SERVED:
            found.append(PendingEvent(one.load_balancer, "PortTaken", "; ".join(one.taken), one.uid))
    found += name_events(desired, EVENT_NAME_CODES)
    found.sort(key=lambda one: (one.service, one.code))
    return tuple(in_turn(found, lambda one: one.service.namespace))


def name_events(desired: Desired, reported: AbstractSet[str]) -> tuple[PendingEvent, ...]:
    """Return one Event for each load balancer and each code of `reported` that rejects its hostnames; sorted.

    Hostnames of a namespace are left out while lookups of it are still running: an Event that stays for an
    hour must name them all.
    """
    if reported.isdisjoint(decision.conclusion.code for decision in desired.names):
        return ()
    waiting = {one.claimed_by.namespace for one in desired.names if one.code in _WAITING}
    uids = {decision.load_balancer: decision.uid for decision in desired.load_balancers}
    refused: dict[tuple[ObjectRef, str], list[NameDecision]] = {}
    for decision in desired.names:
        if decision.status is not DecisionStatus.REFUSED or decision.claimed_by.namespace in waiting:
            continue
        if decision.load_balancer and decision.code in reported:
            refused.setdefault((decision.load_balancer, decision.code), []).append(decision)
    return tuple(
        PendingEvent(service, f"Name{code}", _about(refused[service, code]), uids.get(service, ""))
        for service, code in sorted(refused)
    )


def _about(decisions: Iterable[NameDecision]) -> str:
    by_name: Mapping[str, NameDecision] = {decision.name: decision for decision in decisions}
    ordered = in_turn(by_name.values(), lambda one: one.claimed_by.namespace)
    shown = [
        f"{shown_name(decision.name)} ({decision.claimed_by}): {decision.stable_reason}"
        for decision in ordered[:_NAMES_SHOWN]
    ]
    more = len(by_name) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


_LONGEST_QUEUE = 100
_HOUR, _MINUTE = 3600.0, 60.0
_MOST_A_MINUTE = 20


class EventRecorder:
    """Posts each Event at most once an hour, and all together at most 20 a minute; others are dropped."""

    def __init__(
        self, connection: Connection, node_name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._node_name = node_name
        self._clock = clock
        self._recorded: dict[tuple[ObjectRef, str], float] = {}
        self._queue: queue.Queue[PendingEvent] = queue.Queue(_LONGEST_QUEUE)

    def start(self) -> None:
        """Start to post; the thread ends with the process."""
        threading.Thread(target=self._post, name="events", daemon=True).start()

    def record(self, event: PendingEvent) -> None:
        """Take it over and return at once; Events beyond the budget or the queue are dropped."""
        now, key = self._clock(), (event.service, event.code)
        self._recorded = {known: at for known, at in self._recorded.items() if now - at < _HOUR}
        recent = sum(now - at < _MINUTE for at in self._recorded.values())
        if key not in self._recorded and recent < _MOST_A_MINUTE and not self._queue.full():
            self._recorded[key] = now
            self._queue.put(event)

    def _post(self) -> None:
        log = TransitionLog()
        while True:
            one = self._queue.get()
            failure = post_event(
                self._connection, one.service, one.code, one.message, node_name=self._node_name, uid=one.uid
            )
            # Once for each kind of failure: its words differ with every namespace.
            log.problems("Could not post an Event", {type(failure).__name__: str(failure)} if failure else {})
