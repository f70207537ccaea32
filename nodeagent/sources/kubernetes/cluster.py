"""The cluster as this node needs to know it, kept up to date; what is known of a kind: fail_static.py."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.backoff import Backoff
from nodeagent.errors import SourceError
from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes import resources
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiError, NotFoundError
from nodeagent.sources.kubernetes.fail_static import Answers, KindState, state_of
from nodeagent.sources.kubernetes.reflector import Reflector, Timing
from nodeagent.sources.kubernetes.resources import DISCOVERY, Resource
from nodeagent.sources.kubernetes.single_requests import discover
from nodeagent.sources.objects.kinds import SERVICE_RANGES

_LOG = logging.getLogger(__name__)

_STOP_SECONDS = 0.9


class ResourceState(Struct, frozen=True):
    """The state of one resource, or of discovery, whose objects are the kinds that are served.

    `synced`: it was listed once; `optional`: the agent works without it. `restarts` and `relists` are watches
    begun and lists completed after the first.
    """

    name: str
    synced: bool
    objects: int = 0
    restarts: int = 0
    relists: int = 0
    error: str | None = None
    optional: bool = False
    state: KindState = KindState.KNOWN


class Cluster:
    """Lists and watches everything on which decisions depend, with a daemon thread for each resource.

    `relay` is an existing relay Service, None if this node relays itself. Without `hostnames`, what claims
    them is not watched. `on_change`, called from any of the threads, should only wake another one.
    """

    def __init__(  # noqa: PLR0913 - what it watches, and how
        self,
        connection: Connection,
        node_name: str,
        relay: resources.Name | None = None,
        *,
        hostnames: bool = True,
        on_change: Callable[[], None] = lambda: None,
        timing: Timing | None = None,
    ) -> None:
        self._connection = connection
        self._node = (node_name, relay)
        self._hostnames = hostnames
        self._on_change = on_change
        self._stopping = threading.Event()
        self._timing = timing or Timing()
        self._known = False
        self._waits_until = 0.0
        self._snapshot: Snapshot | None = None
        self._made_of: tuple[object, ...] = ()
        self._lock = threading.Lock()
        self._look_again = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking, name="discovery", daemon=True)
        # By name, what decides, and what failed when it was last asked for.
        self._discovered: dict[str, Answers] = {}
        self._failing: dict[str, SourceError] = {}
        self._reflectors: dict[str, Reflector] = {}

    def start(self) -> None:
        """Start to list and watch; return at once. Call it only once."""
        self._serve({})
        self._looking.start()

    def stop(self) -> None:
        """End all watches within 1 s. `on_change` is not called afterwards; the last Snapshot stays."""
        with self._lock:
            self._stopping.set()
        self._look_again.set()
        reflectors = self._now()
        for reflector in reflectors:
            reflector.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        self._looking.join(max(0.0, deadline - time.monotonic()))
        for reflector in reflectors:
            reflector.join(max(0.0, deadline - time.monotonic()))

    def want_hostnames(self, *, wanted: bool) -> None:
        """Watch what claims hostnames from now on, or no longer; idempotent."""
        if wanted != self._hostnames:
            self._hostnames = wanted
            self._serve({})
            self._look_again.set()

    @property
    def known(self) -> bool:
        """Whether there is a Snapshot: what no pass can do without has been listed once.

        Other kinds are waited for, too, `optional_wait` at most; but none that the server says it lacks.
        """
        if self._known:
            return True
        states = self.states()
        pending = {state.name for state in states if state.state is KindState.PENDING}
        if pending & resources.PROTECTING or not all(state.synced or state.optional for state in states):
            return False
        now = time.monotonic()
        self._waits_until = self._waits_until or now + self._timing.optional_wait
        missing = {DISCOVERY, *(name for name, answers in self._discovered.items() if answers.missing)}
        self._known = now >= self._waits_until or pending <= missing
        return self._known

    def snapshot(self) -> Snapshot | None:
        """Return the cluster as last known, the same object until something changes; None until `known`."""
        if not self.known:
            return None
        states = [state for state in self.states() if state.optional and state.name != DISCOVERY]
        absent = {state.name for state in states if state.state is KindState.ABSENT}
        denied = (self._denial(state) for state in states if state.state is KindState.DENIED)
        unseen = [state for state in states if state.state is KindState.PENDING]
        pending = {state.name: state.error or "the API server has not shown it yet" for state in unseen}
        objects = [watcher.store.values() for watcher in self._now() if watcher.resource.name not in absent]
        made_of = (objects, tuple(dict.fromkeys(denied)), pending)
        if self._snapshot is None or made_of != self._made_of:
            self._snapshot, self._made_of = resources.assembled(*made_of), made_of
        return self._snapshot

    def states(self) -> tuple[ResourceState, ...]:
        """Return the state of each resource that is wanted, served or not, in a fixed order."""
        reflectors = {reflector.resource.name: reflector for reflector in self._now()}
        rows = resources.watched(*self._node, hostnames=self._hostnames)
        names = resources.optional_names(hostnames=self._hostnames)
        return (
            *(self._of(row.name, reflectors.get(row.name), optional=row.optional) for row in rows),
            self._of_discovery(),
            *(self._of(name, reflectors.get(name), optional=True) for name in names),
        )

    def _of(self, name: str, reflector: Reflector | None, *, optional: bool) -> ResourceState:
        state = self._state(name, reflector)
        error = reflector.answers.error if reflector else self._failing.get(name)
        return ResourceState(
            name,
            synced=bool(reflector and reflector.store.synced),
            objects=len(reflector.store) if reflector else 0,
            restarts=max(0, reflector.watches - 1) if reflector else 0,
            relists=max(0, reflector.lists - 1) if reflector else 0,
            error=None if error is None or state is KindState.ABSENT else str(error),
            optional=optional,
            state=state,
        )

    def _state(self, name: str, reflector: Reflector | None) -> KindState:
        answers, known = (reflector.answers, reflector.store.synced) if reflector else (None, False)
        return state_of(answers, self._discovered.get(name), known=known)

    def _of_discovery(self) -> ResourceState:
        denied = any(answers.denied for answers in self._discovered.values())
        answered = len(self._failing) < len(self._discovered)
        return ResourceState(
            DISCOVERY,
            synced=answered,
            objects=sum(answers.error is None for answers in self._discovered.values()),
            error="; ".join(dict.fromkeys(map(str, self._failing.values()))) or None,
            optional=True,
            state=KindState.DENIED if denied else KindState.KNOWN if answered else KindState.PENDING,
        )

    def _denial(self, state: ResourceState) -> tuple[str, str]:
        discovered = self._discovered.get(state.name)
        if discovered is not None and discovered.denied:
            return DISCOVERY, str(discovered.error)
        return state.name, state.error or ""

    def _keep_looking(self) -> None:
        backoff = Backoff(self._timing.backoff[0], self._timing.discovery[1])
        while not self._stopping.is_set():
            try:
                self._take_over(discover(self._connection, hostnames=self._hostnames))
                pause = self._until_next_look(backoff)
            except Exception:  # noqa: BLE001 - a bug in nodeagent must not end the thread
                _LOG.exception("Discovery failed unexpectedly; what is known stays")
                pause = backoff.next()
            self._look_again.wait(pause)
            self._look_again.clear()

    def _take_over(self, discovery: Mapping[str, Resource | SourceError]) -> None:
        before, now = self.states(), time.monotonic()
        lasting = self._timing.lasting
        discovered, failing = {}, {}
        for name, answer in discovery.items():
            error = answer if isinstance(answer, SourceError) else None
            # Kubernetes' own kinds are there from the beginning: a server without one is older.
            fresh = Answers(replace(lasting, absent=0.0) if name == SERVICE_RANGES.name else lasting)
            discovered[name] = self._discovered.get(name, fresh).then(error, now)
            if error is not None and not isinstance(error, NotFoundError):
                failing[name] = error
        self._discovered, self._failing = discovered, failing
        self._serve(discovery)
        if [state.state for state in before] != [state.state for state in self.states()]:
            self._changed()

    def _until_next_look(self, backoff: Backoff) -> float:
        if self._failing and all(self._discovered[name].denied for name in self._failing):
            return random.uniform(*self._timing.refused)  # noqa: S311 - spreads load, guards nothing
        if self._failing:
            waits = [error.retry_after for error in self._failing.values() if isinstance(error, ApiError)]
            return backoff.next(max((seconds for seconds in waits if seconds is not None), default=None))
        backoff.reset()
        if any(answers.missing and not answers.absent for answers in self._discovered.values()):
            return self._timing.lasting.absent / 2
        return random.uniform(*self._timing.discovery)  # noqa: S311 - as above

    def _now(self) -> list[Reflector]:
        with self._lock:
            return list(self._reflectors.values())

    def _serve(self, discovery: Mapping[str, Resource | SourceError]) -> None:
        """Watch what is wanted and served, and no longer what is not; idempotent."""
        kinds = resources.optional_names(hostnames=self._hostnames)
        rows = [*resources.watched(*self._node, hostnames=self._hostnames)]
        rows += [row for row in discovery.values() if isinstance(row, Resource) and row.name in kinds]
        wanted = {*kinds, *(row.name for row in rows)}
        with self._lock:
            if self._stopping.is_set():
                return
            states = {name: self._state(name, reflector) for name, reflector in self._reflectors.items()}
            absent = {name for name in kinds if states.get(name) is KindState.ABSENT}
            removed = [self._reflectors.pop(name) for name in states if name in absent or name not in wanted]
            for row in rows:
                self._watch(row)
        for obsolete in removed:
            obsolete.stop()
        if removed:
            self._changed()

    def _watch(self, row: Resource) -> None:
        current, store = self._reflectors.get(row.name), None
        if current is not None:
            if current.resource.path == row.path:
                return
            current.stop()
            # In another version they are the same objects: the held ones stay until they are listed in it.
            store = current.store
        self._reflectors[row.name] = Reflector(self._connection, row, self._timing, self._changed, store)
        self._reflectors[row.name].start()

    def _changed(self) -> None:
        if not self._stopping.is_set():
            self._on_change()
