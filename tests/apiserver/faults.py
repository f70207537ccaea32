"""What can go wrong between a client and its API server, simulated or real, armed at run time.

A fault is armed for a path pattern, for verbs, and for a number of times. Request faults strike when a
request arrives; line faults strike when a watch is about to write a line.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with this instead of doing the request; without a body, with a Status object."""

    code: int
    retry_after: int | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def html_page(code: int = 200) -> Answer:
    """Answer with an HTML page, as a captive portal or a proxy in front of the server does."""
    page = b"<!DOCTYPE html><html><head><title>Gateway</title></head><body>Please log in.</body></html>\n"
    return Answer(code, body=page, content_type="text/html; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Hold:
    """Answer only when the test says so: a slow answer without a clock."""

    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    released: threading.Event = field(default_factory=threading.Event)

    def wait_until_held(self, timeout: float = 5.0) -> None:
        """Return when one more request has arrived and waits; TimeoutError when none does."""
        if not self.arrived.acquire(timeout=timeout):
            raise TimeoutError(f"no request arrived to be held within {timeout} s")

    def release(self) -> None:
        """Let all held requests go on, and all later ones pass."""
        self.released.set()


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection without an answer; with `reset` by a TCP reset."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class CutBody:
    """Close the connection after some bytes of the answer's body; the header promised all of it."""

    after: int = 100


@dataclass(frozen=True, slots=True)
class CutLine:
    """Close the connection in the middle of a watch event's line."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """Send nothing more on this stream, neither events nor bookmarks nor its end, and keep it open."""


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """Send an ERROR event in place of an event and end the stream, as a server that must give up."""

    code: int = 410
    reason: str = "Expired"
    message: str = "The resourceVersion for the provided watch is too old."


RequestFault = Answer | Hold | Disconnect | CutBody
LineFault = CutLine | Silence | ErrorLine
Fault = RequestFault | LineFault


def made(kind: str, **fields: Any) -> Any:  # noqa: ANN401 - as a table of cases has it
    """Make a fault by its name here."""
    return globals()[kind](**fields)


@dataclass(slots=True)
class Armed:
    """A fault that waits to strike, `left` times yet; it did so `used` times."""

    fault: Fault
    path: str
    verbs: frozenset[str]
    left: float
    used: int = 0


class Faults:
    """All armed faults of a server; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Armed] = []

    def add(
        self, fault: Fault, *, path: str = "*", verbs: Collection[str] = (), times: int | None = 1
    ) -> Armed:
        """Arm a fault for so many requests, or lines, or for all until it is removed.

        The path is a glob pattern, without query (`*` matches `/` too); no verbs are all of them.
        """
        armed = Armed(fault, path, frozenset(verbs), inf if times is None else times)
        with self._lock:
            self._armed.append(armed)
        return armed

    def remove(self, armed: Armed) -> None:
        """Disarm a fault; a Hold lets its requests go."""
        with self._lock:
            self._armed.remove(armed)
        if isinstance(armed.fault, Hold):
            armed.fault.release()

    def clear(self) -> None:
        for armed in self._armed.copy():
            self.remove(armed)

    def strike(self, verb: str, path: str, *kinds: type[Fault]) -> Fault | None:
        """Return the first fault of these kinds that strikes a request, or the next line of a watch."""
        with self._lock:
            for armed in self._armed:
                if (
                    isinstance(armed.fault, kinds)
                    and armed.left
                    and (not armed.verbs or verb in armed.verbs)
                    and fnmatchcase(path, armed.path)
                ):
                    armed.used += 1
                    armed.left -= 1
                    return armed.fault
        return None
