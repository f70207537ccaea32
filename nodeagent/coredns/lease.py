"""Which of several controllers writes: only the holder of a Lease (coordination.k8s.io/v1).

The rules are client-go's (tools/leaderelection), stricter where it leaves a gap:

- Another's lease has expired if it has not changed for its duration by one's own monotonic clock, counted
  from the moment one first saw it so: no two clocks are compared, and none can be set back.
- One's own lease expires RENEW_SECONDS after the last renewal *began*: before any other controller takes it.
- Every write to the Lease is a compare-and-swap on its resourceVersion, so of two that try one fails.
- Before a write to anything else, `confirm` reads the Lease once more and says how long the write may take.
  It can't stop a write that the network delivers after that time; the write's own compare-and-swap does: the
  controller that took over has read, and perhaps written, later.
- `release` releases the lease, so that no other has to wait after an orderly end.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from msgspec import Struct

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import AlreadyExistsError, ConflictError, NotFoundError

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


class LeaseName(Struct, frozen=True):
    """A Lease by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    @property
    def collection(self) -> str:
        """The path of its namespace's Leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def path(self) -> str:
        """Its own path."""
        return f"{self.collection}/{self.name}"


class _Seen(Struct, frozen=True):
    """Another's lease as it was first seen: when that was, its holder, its duration."""

    version: str
    holder: str
    since: float
    duration: float


class LeaderElector:
    """Tries to acquire a Lease, and keeps it.

    Args:
        connection: To the API server. RBAC: create leases; get and update this one by name.
        lease: Which one.
        identity: This process's name among the others; no two may have the same.
        on_change: Called, from the thread of `start`, when the holder changes.
        timing: Its durations.
        clock: Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that an election rests on
        self,
        connection: Connection,
        lease: LeaseName,
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
        self._seen: _Seen | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: SourceError | None = None
        """What is wrong with the Lease now; None while all is well."""
        """When the last attempt began (the clock's seconds): shows whether the thread is alive."""

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the lease at this moment."""
        until = self._mine_until  # once: the lease's thread may take it away in between
        return until is not None and self._clock() < until

    @property
    def holder(self) -> str:
        """The holder when it was last seen; empty if there was none."""
        if self.is_leader:
            return self._identity
        return self._seen.holder if self._seen else ""

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
        """Try once to acquire or renew the lease; raises nothing: `error` and `is_leader` show the result."""
        with self._lock:
            began = self._clock()
            try:
                self._try(began)
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
            if not self.is_leader:
                raise NotLeaderError(f"{self._lease} is not held (any longer): nothing was written")
            found = self._read()
            if found is None or _holder(found) != self._identity or _version(found) != self._version:
                self._mine_until = None
                holder = _holder(found) if found else "nobody"
                raise NotLeaderError(
                    f"{self._lease} is held by {holder or 'no process'}: nothing was written"
                )
            left = (self._mine_until or 0.0) - self._clock()
        if left < _SHORTEST_WRITE:
            raise NotLeaderError(f"{self._lease} is about to expire: nothing was written")
        return left

    def release(self) -> None:
        """Release the Lease, if it is held, so that another need not wait. Idempotent; never raises."""
        with self._lock:
            if not self.is_leader:
                return
            self._mine_until = None
            try:
                found = self._read()
                if found is not None and _holder(found) == self._identity:
                    self._connection.put_json(
                        self._lease.path, self._object(found, holder=""), self._timing.request
                    )
            except SourceError as error:
                _LOG.warning(
                    "Could not release the Lease; another controller takes it when it has expired",
                    extra={"fields": {"err": str(error)}},
                )

    def _run(self) -> None:
        known: tuple[bool, str] = (False, "")
        while not self._stopping.is_set():
            self.try_once()
            if (self.is_leader, self.holder) != known:
                known = (self.is_leader, self.holder)
                self._on_change()
            self._stopping.wait(self._timing.retry)

    def _try(self, began: float) -> None:
        found = self._read()
        if found is None:
            self._take(self._create, None, began)
        elif _holder(found) == self._identity or not _holder(found) or self._is_over(found, began):
            self._take(self._update, found, began)
        else:
            self._mine_until = None

    def _is_over(self, found: Mapping[str, Any], now: float) -> bool:
        """Whether another's lease has been unchanged for so long that it may be taken."""
        seen = self._seen
        if seen is None or seen.version != _version(found):
            seconds = found.get("spec", {}).get("leaseDurationSeconds") or self._timing.duration
            self._seen = _Seen(_version(found), _holder(found), now, float(seconds))
            return False
        return now - seen.since >= seen.duration

    def _take(
        self, write: Callable[[dict[str, Any]], bytes], found: Mapping[str, Any] | None, began: float
    ) -> None:
        written = _decoded(write(self._object(found, holder=self._identity)), self._lease)
        self._version = _version(written)
        self._mine_until = began + self._timing.renew
        self._seen = None

    def _create(self, lease: dict[str, Any]) -> bytes:
        try:
            return self._connection.post_json(self._lease.collection, lease, self._timing.request)
        except AlreadyExistsError as error:
            raise ConflictError(str(error)) from error

    def _update(self, lease: dict[str, Any]) -> bytes:
        return self._connection.put_json(self._lease.path, lease, self._timing.request)

    def _read(self) -> Mapping[str, Any] | None:
        try:
            return _decoded(
                self._connection.get_json(self._lease.path, timeout=self._timing.request), self._lease
            )
        except NotFoundError:
            return None

    def _object(self, found: Mapping[str, Any] | None, *, holder: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime(_TIME_FORMAT)
        metadata = {"namespace": self._lease.namespace, "name": self._lease.name}
        before: Mapping[str, Any] = (found or {}).get("spec") or {}
        again = before.get("holderIdentity") == holder
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._timing.duration)) if holder else 1,
            "acquireTime": before.get("acquireTime") if again and before.get("acquireTime") else now,
            "renewTime": now,
            "leaseTransitions": (before.get("leaseTransitions") or 0) + int(bool(before) and not again),
        }
        return {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": (found or {}).get("metadata") or metadata,
            "spec": spec,
        }


def _decoded(body: bytes, lease: LeaseName) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise SourceError(f"{lease}: the answer is invalid: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise SourceError(f"{lease}: the answer is not a Lease")
    return found


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _version(lease: Mapping[str, Any]) -> str:
    return str(lease["metadata"].get("resourceVersion") or "")
