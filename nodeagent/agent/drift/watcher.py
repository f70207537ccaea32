"""What all watchers share: a thread that waits, silence during own changes, a restart after a failure."""

import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff
from nodeagent.components.component import ComponentName
from nodeagent.errors import ApplyError

OnDrift = Callable[[ComponentName, str], None]
"""Called with the component and the observation, for a person."""

_START_SECONDS = 2.0
_STOP_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
_STABLE_SECONDS = 10.0


class WatcherState(Struct, frozen=True):
    """Whether a watcher sees what happens to its component; `error`: why not, or what it waits for."""

    name: ComponentName
    running: bool
    error: str = ""


class EventSource(Protocol):
    """The source of a watcher: notifications of the kernel, over netlink or inotify."""

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1 if there is none now."""

    def close(self) -> None:
        """Stop listening."""


_StateT = TypeVar("_StateT")
_SourceT = TypeVar("_SourceT", bound=EventSource)
_ComparedT = TypeVar("_ComparedT")


class Watcher(ABC, Generic[_StateT, _SourceT]):
    """Watches one component of the node in a daemon thread of its own.

    The thread lives in the network and mount namespace of the thread that calls `start`.

    Args:
        on_drift: Called from the watcher's thread whenever another program changed the component, or may
            have. It should return at once: nothing is noticed meanwhile, but nothing is lost either.
    """

    component: ClassVar[ComponentName]

    def __init__(self, on_drift: OnDrift) -> None:
        self._on_drift = on_drift
        self._lock = threading.Lock()
        self._bell = -1
        self._tried = threading.Event()
        self._stopping = False
        self._quiet = 0
        self._own_change_ended = False
        self._state = WatcherState(self.component, running=False, error="not started")
        self._thread: threading.Thread | None = None
        self._source: _SourceT | None = None

    def start(self) -> None:
        """Begin to watch; idempotent.

        Returns when it watches, or could not yet (see `state`; then it keeps trying), so that a change after
        a later read is noticed. Waits two seconds at most. If no descriptor or no thread is available, the
        state says so, and a further call tries again.
        """
        if self._thread is not None or self._stopping:
            return
        thread = threading.Thread(target=self._run, name=f"drift-{self.component}", daemon=True)
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            thread.start()
        except (OSError, RuntimeError) as error:
            self._state = WatcherState(self.component, running=False, error=_words(error))
            if self._bell >= 0:
                os.close(self._bell)
                self._bell = -1
            return
        self._thread = thread
        self._tried.wait(_START_SECONDS)

    def stop(self) -> None:
        """End within a second; idempotent. No call of `on_drift` begins afterwards."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._lock:
            self._stopping = True
            self._ring()
        if thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)

    def state(self) -> WatcherState:
        """Return the watcher's state; from any thread."""
        return self._state

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Hold back all calls while the block runs, for own changes; may be nested.

        Events meanwhile are judged at the end of the block, by the state that `expect` has by then: a
        change by another program at the same time is not lost.
        """
        with self._lock:
            self._quiet += 1
        try:
            yield
        finally:
            with self._lock:
                self._quiet -= 1
                self._own_change_ended = True
                self._ring()

    @abstractmethod
    def expect(self, state: _StateT) -> None:
        """Take the state that a pass has left: any change from it is drift. In the `quiet` block of the pass.

        If another program changed something after it was read, that change's own event reports it.
        """

    @abstractmethod
    def _open(self) -> _SourceT:
        """Return what to listen to. Raises OSError if it is not available."""

    def _begin(self, source: _SourceT) -> None:
        """Subscribe to the events, and read what is there. Raises OSError as `_open` does."""

    @abstractmethod
    def _read(self, source: _SourceT) -> None:
        """Read the events, without waiting. Raises OSError if the watch is broken.

        `_own_change_ended` is set if a quiet block ended since the last call.
        """

    @abstractmethod
    def _judge(self, source: _SourceT) -> str:
        """Return which of them are drift, and forget them; empty if none are. Not called in a quiet block."""

    def _timeout(self, source: _SourceT) -> float | None:  # noqa: ARG002 - for others
        """Return the seconds after which to read and judge even without an event; None for never."""
        return None

    def _trouble(self, source: _SourceT) -> str:  # noqa: ARG002 - for others
        """Return what a running watch still waits for; for the state."""
        return ""

    def _ring(self) -> None:
        """Wake the thread; under the lock."""
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        failures = 0
        interrupted = ""
        try:
            while not self._stopping:
                began = time.monotonic()
                opened = False
                try:
                    with closing(self._open()) as source:
                        self._source = source
                        self._begin(source)
                        opened = True
                        if interrupted:
                            self._tell(f"the watch was interrupted and was restarted ({interrupted})")
                        self._loop(source)
                except Exception as error:  # noqa: BLE001 - a watcher never dies silently, of whatever cause
                    interrupted = _words(error)
                    self._state = WatcherState(self.component, running=False, error=interrupted)
                    if opened:
                        self._tell(f"the watch was interrupted: {interrupted}")
                finally:
                    self._tried.set()
                if time.monotonic() - began > _STABLE_SECONDS:
                    failures = 0
                failures += 1
                self._sleep(backoff(failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        finally:
            with self._lock:
                os.close(self._bell)
                self._bell = -1
            self._state = WatcherState(self.component, running=False, error="stopped")

    def _loop(self, source: _SourceT) -> None:
        while not self._stopping:
            with self._lock:
                self._read(source)
                what = ""
                if not self._quiet:
                    self._own_change_ended = False
                    what = self._judge(source)
            self._state = WatcherState(self.component, running=True, error=self._trouble(source))
            self._tried.set()
            if what:
                self._tell(what)
            self._wait(self._timeout(source), source.fileno())

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._wait(left)

    def _wait(self, seconds: float | None, descriptor: int = -1) -> None:
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        # Rounded up: a rest below a millisecond would cause a busy loop.
        ready = poll.poll(None if seconds is None else int(seconds * 1000) + 1)
        if any(descriptor == self._bell for descriptor, _ in ready):
            os.eventfd_read(self._bell)

    def _tell(self, what: str) -> None:
        if not self._stopping:
            self._on_drift(self.component, what)


class ComparingWatcher(Watcher[_StateT, _SourceT], Generic[_StateT, _SourceT, _ComparedT]):
    """Reads the actual state after an event, and compares it with the state that a pass has left.

    One change makes several events: the same state is reported once.
    """

    def __init__(self, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._touched = False
        self._expected: _ComparedT | None = None
        self._reported: _ComparedT | str | None = None

    def expect(self, state: _StateT) -> None:
        """See `Watcher`."""
        with self._lock:
            self._reported = None
            self._expected = self._compared(state)

    @abstractmethod
    def _compared(self, state: _StateT) -> _ComparedT:
        """Return what of a state is compared."""

    @abstractmethod
    def _read_actual(self) -> _ComparedT:
        """Read the actual state. Raises ApplyError if it can't be read, which is drift."""

    @abstractmethod
    def _difference(self, found: _ComparedT) -> str:
        """Return how the actual state differs from the expected one, for a person."""

    def _judge(self, source: _SourceT) -> str:  # noqa: ARG002 - the actual state shows it
        if not self._touched:
            return ""
        self._touched = False
        try:
            found: _ComparedT | str = self._read_actual()
        except ApplyError as error:
            found = str(error)
        if found in (self._expected, self._reported):
            return ""
        self._reported = found
        return found if isinstance(found, str) else self._difference(found)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
