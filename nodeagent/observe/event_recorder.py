"""Kubernetes Events for what an administrator must know: which, on which Service, and how they are posted."""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter

from msgspec import Struct

from nodeagent.errors import SourceError, cut_to_bytes, printable, shown_name
from nodeagent.model.decisions import DecisionStatus, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.transition_log import TransitionLog, in_turn
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import AlreadyExistsError

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
_HOUR, _MINUTE = 3600.0, 60.0
_MOST_A_MINUTE, _MOST_OF_A_NAMESPACE = 20, 5
_BY_DNS, _PATIENCE = frozenset({"NameNotVerified", "NameNoSuchName", "NameNoDnsAddress"}), 60.0
"""A hostname has these seconds: a new record in DNS, or a new object's status, may need them."""

_LONGEST_MESSAGE = 1024
"""Bytes: the API's limit for an Event's note (k8s.io/kubernetes, validation of events)."""
_LONGEST_NAME = 253


class PendingEvent(Struct, frozen=True):
    """An Event about a Service, which `kubectl describe` finds by `uid`."""

    service: ObjectRef
    code: str
    message: str
    uid: str = ""


def pending_events(desired: Desired) -> tuple[PendingEvent, ...]:
    """Return an Event for each rejected load balancer, and for each kind of rejected hostnames."""
    # Every node words them alike, so that one Event serves all; not ports that another program holds.
    events = []
    for decision in desired.load_balancers:
        if decision.status is DecisionStatus.REFUSED:
            events.append(PendingEvent(decision.load_balancer, decision.code, decision.reason, decision.uid))
        elif decision.taken and decision.status is DecisionStatus.SERVED:
            events.append(
                PendingEvent(decision.load_balancer, "PortTaken", "; ".join(decision.taken), decision.uid)
            )
    events += name_events(desired, EVENT_NAME_CODES)
    events.sort(key=lambda event: (event.service, event.code))
    return tuple(in_turn(events, lambda event: event.service.namespace))


def name_events(desired: Desired, reported: AbstractSet[str]) -> tuple[PendingEvent, ...]:
    """Return an Event per load balancer and code of `reported`, once its namespace's lookups have ended."""
    if reported.isdisjoint(map(attrgetter("conclusion.code"), desired.names)):
        return ()
    waiting = {name.claimed_by.namespace for name in desired.names if name.code in _WAITING}
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
    ordered = in_turn(by_name.values(), lambda decision: decision.claimed_by.namespace)
    shown = [
        f"{shown_name(decision.name)} ({decision.claimed_by}): {decision.stable_reason}"
        for decision in ordered[:_NAMES_SHOWN]
    ]
    more = len(by_name) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def post_event(
    connection: Connection, event: PendingEvent, node_name: str = "", now: datetime | None = None
) -> SourceError | None:
    """Create it, one an hour for all nodes; return why it could not be. RBAC: create events."""
    about, message = event.service, cut_to_bytes(printable(event.message), _LONGEST_MESSAGE)
    stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256(repr((about, event.code, message, stamp[:13])).encode()).hexdigest()[:16]
    involved = {"kind": about.kind, "apiVersion": "v1", "name": about.name, "namespace": about.namespace}
    name = f"{about.name[: _LONGEST_NAME - len(digest) - 1]}.{digest}"
    body = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": about.namespace},
        "involvedObject": involved | ({"uid": event.uid} if event.uid else {}),
        "type": "Warning",
        "reason": event.code,
        "message": message,
        "source": {"component": "nodeagent", **({"host": node_name} if node_name else {})},
        "reportingComponent": "nodeagent",
        "reportingInstance": node_name,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        with suppress(AlreadyExistsError):
            connection.write("create", f"/api/v1/namespaces/{about.namespace}/events", body)
    except SourceError as error:
        return error
    return None


class EventRecorder:
    """Posts each Event at most once an hour, and few a minute; namespaces take turns, and the rest waits."""

    def __init__(
        self, connection: Connection, node_name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._node_name = node_name
        self._clock = clock
        self._pending: Mapping[tuple[ObjectRef, str], tuple[PendingEvent, float]] = {}
        self._recorded: dict[tuple[ObjectRef, str], float] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start to post; the thread ends with the process."""
        threading.Thread(target=self._post, name="events", daemon=True).start()

    def record(self, events: Sequence[PendingEvent]) -> None:
        """Take over what is to be reported now, and drop what else still waited."""
        with self._changed:
            since = {key: began for key, (_, began) in self._pending.items()}
            now = self._clock()
            keyed = (((event.service, event.code), event) for event in events)
            self._pending = {key: (event, since.get(key, now)) for key, event in keyed}
            self._changed.notify()

    def _next(self) -> PendingEvent:
        """Wait for the next one, of the namespace that had the fewest."""
        with self._changed:
            while True:
                now = self._clock()
                self._recorded = {key: at for key, at in self._recorded.items() if now - at < _HOUR}
                recent = {key: at for key, at in self._recorded.items() if now - at < _MINUTE}
                used = Counter(service.namespace for service, _ in recent)
                waiting = [
                    (event, began + _PATIENCE * (event.code in _BY_DNS))
                    for key, (event, began) in self._pending.items()
                    if key not in self._recorded
                ]
                due = [event for event, at in waiting if at <= now]
                first = min(due, key=lambda event: used[event.service.namespace], default=None)
                if first is None:
                    self._changed.wait(min(at for _, at in waiting) - now if waiting else None)
                elif len(recent) >= _MOST_A_MINUTE or used[first.service.namespace] >= _MOST_OF_A_NAMESPACE:
                    self._changed.wait(min(recent.values()) + _MINUTE - now)
                else:
                    self._recorded[first.service, first.code] = now
                    return first

    def _post(self) -> None:
        log = TransitionLog()
        while True:
            event = self._next()
            failure = post_event(self._connection, event, self._node_name)
            # Once for each kind of failure: its words differ with every namespace.
            log.problems("Could not post an Event", {type(failure).__name__: str(failure)} if failure else {})
