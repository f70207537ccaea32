"""Which of several controllers writes: only the holder of a Lease (coordination.k8s.io/v1).

The rules are client-go's (tools/leaderelection), stricter where it leaves a gap:

- Another's lease has expired if it has not changed for its duration by one's own monotonic clock, counted
  from the moment one first saw it so: no two clocks are compared, and none can be set back.
- One's own lease expires `renew` seconds after the last renewal *began*: before another controller takes it.
- Every write to the Lease is a compare-and-swap on its resourceVersion, so of two that try one fails.
- Before a write to anything else, `confirm` reads the Lease once more and says how long the write may take.
  It can't stop a write that the network delivers after that time; the write's own compare-and-swap does: the
  controller that took over has read, and perhaps written, later.
- `release` releases the lease, so that no other has to wait after an orderly end; `remove` deletes it.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from msgspec import Struct, field

from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import AlreadyExistsError, ConflictError, NotFoundError
from nodeagent.sources.kubernetes.resources import collection_path, object_path
from nodeagent.typed_values import from_json

_LOG = logging.getLogger("nodeagent")

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_SHORTEST_WRITE = 1.0
"""Seconds: with less time left, a write is not begun."""


class NotLeaderError(SourceError):
    """Another controller may be the writer now: nothing was written."""


class LeaseTiming(Struct, frozen=True):
    """Seconds; the defaults are client-go's.

    Attributes:
        duration: How long others respect a lease that is not renewed. A hand-over may take that long.
        renew: How long the holder relies on a renewal. Must be shorter than `duration`.
        retry: Time between two attempts to acquire or renew it.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    @classmethod
    def of(cls, duration: float) -> Self:
        """Return the same proportions for another duration."""
        return cls(duration, duration * 2 / 3, duration * 2 / 15)

    @property
    def request(self) -> float:
        """How long one request may take: two fit into the time of a renewal."""
        return self.renew / 2


CLIENT_GO = LeaseTiming()


class _Spec(Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Struct, frozen=True):
    """A Lease as the API has it; its metadata goes back unchanged."""

    metadata: dict[str, Any]
    spec: _Spec = field(default_factory=_Spec)

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion") or "")


class LeaderElector:
    """Tries to acquire a Lease, and keeps it (runtime.driver.Election).

    Args:
        connection: To the API server. RBAC: create leases; get and update this one by name, delete it for
            `remove`.
        lease: Which one.
        identity: This process's name among the others; no two may have the same.
        on_change: Called, from the thread of `start`, when the holder changes.
        timing: Its durations.
        clock: Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that an election rests on
        self,
        connection: Connection,
        lease: ObjectRef,
        identity: str,
        on_change: Callable[[], None] = lambda: None,
        timing: LeaseTiming = CLIENT_GO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._lease = lease
        self._identity = identity
        self._on_change = on_change
        self._timing = timing
        self._clock = clock
        self._mine_until: float | None = None
        self._version = ""
        # Another's lease, and when it was first seen so.
        self._seen: _Lease | None = None
        self._seen_since = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: SourceError | None = None
        """What is wrong with the Lease now; None while all is well."""

    def is_writer(self) -> bool:
        """Whether this process holds the lease at this moment. From any thread."""
        until = self._mine_until  # once: the lease's thread may take it away in between
        return until is not None and self._clock() < until

    @property
    def holder(self) -> str:
        """The holder when it was last seen; empty if there was none."""
        if self.is_writer():
            return self._identity
        return self._seen.holder if self._seen else ""

    @property
    def standby_reason(self) -> str:
        """Who holds it, for a person; empty if no other controller was seen."""
        return f"{self.holder} holds {self._lease}" if self._seen else ""

    def exists(self) -> bool:
        """Whether there is such a Lease. Raises SourceError."""
        return self._read() is not None

    def start(self) -> None:
        """Start trying to acquire the lease in a thread of its own; return at once. Call it only once."""
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End that, and release the Lease if it is held. The caller must have stopped writing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2 * self._timing.request + 1)
        self.release()

    def try_once(self) -> None:
        """Try once to acquire or renew the lease; raises nothing: `error` and `is_writer` show the result."""
        with self._lock:
            try:
                self._try(self._clock())
            except ConflictError:
                # Another controller was faster. The next read of the Lease shows what that means.
                return
            except SourceError as error:
                self.error = error
            else:
                self.error = None

    def confirm(self) -> float:
        """Read the Lease once more, right before a write.

        Returns:
            The seconds that the write may take.

        Raises:
            NotLeaderError: another holds the lease, or may do so too soon.
            SourceError: the API does not answer.
        """
        with self._lock:
            if not self.is_writer():
                raise NotLeaderError(f"{self._lease} is not held (any longer): nothing was written")
            found = self._read()
            if found is None or (found.holder, found.version) != (self._identity, self._version):
                self._mine_until = None
                holder = (found.holder if found else "") or "no process"
                raise NotLeaderError(f"{self._lease} is held by {holder}: nothing was written")
            left = (self._mine_until or 0.0) - self._clock()
        if left < _SHORTEST_WRITE:
            raise NotLeaderError(f"{self._lease} is about to expire: nothing was written")
        return left

    def release(self) -> None:
        """Release the Lease, if it is held, so that another need not wait. Idempotent; never raises."""
        with self._lock:
            if not self.is_writer():
                return
            self._mine_until = None
            try:
                found = self._read()
                if found is not None and found.holder == self._identity:
                    self._write(found, holder="")
            except SourceError as error:
                _LOG.warning(
                    "Could not release the Lease; another controller takes it when it has expired",
                    extra={"fields": {"err": str(error)}},
                )

    def remove(self) -> None:
        """Delete the Lease, which must be held: for the last one, when no controller runs any more.

        Raises:
            NotLeaderError: another took it; it stays.
            SourceError: the API does not answer, or denies it.
        """
        left = self.confirm()
        exact = {"resourceVersion": self._version}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": exact}
        try:
            self._connection.write(
                "delete", object_path(self._lease), options, min(left, self._timing.request)
            )
        except ConflictError as error:
            raise NotLeaderError(f"{self._lease} was taken meanwhile; it stays") from error
        except NotFoundError:
            pass
        self._mine_until = None

    def _run(self) -> None:
        known: tuple[bool, str] = (False, "")
        while not self._stopping.is_set():
            self.try_once()
            if (self.is_writer(), self.holder) != known:
                known = (self.is_writer(), self.holder)
                self._on_change()
            self._stopping.wait(self._timing.retry)

    def _try(self, began: float) -> None:
        found = self._read()
        if found and found.holder not in {"", self._identity}:
            if self._seen is None or self._seen.version != found.version:
                self._seen, self._seen_since = found, began
            if began - self._seen_since < (found.spec.lease_duration_seconds or self._timing.duration):
                self._mine_until = None
                return
        self._version = self._write(found, self._identity).version
        self._mine_until = began + self._timing.renew
        self._seen = None

    def _read(self) -> _Lease | None:
        try:
            return self._decoded(
                self._connection.get_json(object_path(self._lease), timeout=self._timing.request)
            )
        except NotFoundError:
            return None

    def _write(self, found: _Lease | None, holder: str) -> _Lease:
        """Write `holder` into the Lease as it was found, or create it. Raises ConflictError, SourceError."""
        now = datetime.now(UTC).strftime(_TIME_FORMAT)
        before = found.spec if found else _Spec()
        again = before.holder_identity == holder
        spec = _Spec(
            holder,
            max(1, round(self._timing.duration)) if holder else 1,
            (before.acquire_time if again else None) or now,
            now,
            (before.lease_transitions or 0) + int(found is not None and not again),
        )
        lease, new = self._lease, {"namespace": self._lease.namespace, "name": self._lease.name}
        body = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": found.metadata if found else new,
            "spec": msgspec.to_builtins(spec),
        }
        seconds = self._timing.request
        try:
            if found is not None:
                return self._decoded(self._connection.write("update", object_path(lease), body, seconds))
            return self._decoded(self._connection.write("create", collection_path(lease), body, seconds))
        except AlreadyExistsError as error:
            raise ConflictError(str(error)) from error

    def _decoded(self, body: bytes) -> _Lease:
        try:
            return from_json(body, _Lease)
        except msgspec.MsgspecError as error:
            raise SourceError(f"{self._lease}: the answer is not a Lease: {error}") from error
