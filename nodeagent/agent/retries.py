"""When a component is tried again: after a failure, and after repairs that another program reverts."""

import random
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff
from nodeagent.components.component import ComponentName

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_JITTER = 0.2


class Failure(Struct, frozen=True):
    """A component that failed: since when, how often, when it is due again, and why; monotonic seconds."""

    since: float
    attempts: int
    due: float
    reason: str


@dataclass(slots=True)
class Retries:
    """The components that failed last time."""

    _failures: dict[ComponentName, Failure] = field(default_factory=dict)

    @property
    def failures(self) -> Mapping[ComponentName, Failure]:
        """What failed and has not succeeded since."""
        return dict(self._failures)

    def failed(self, component: ComponentName, reason: str, now: float) -> Failure:
        """Note a failure; the retry is due after 1 s, 2 s, 4 s and so on up to a minute, with jitter."""
        earlier = self._failures.get(component)
        attempts = earlier.attempts + 1 if earlier else 1
        pause = backoff(attempts, _FIRST_SECONDS, _LONGEST_SECONDS)
        pause *= random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing
        failure = Failure(earlier.since if earlier else now, attempts, now + pause, reason)
        self._failures[component] = failure
        return failure

    def succeeded(self, component: ComponentName) -> Failure | None:
        """Forget the component's failure and return it, if there was one."""
        return self._failures.pop(component, None)

    def due(self, now: float) -> frozenset[ComponentName]:
        """Return the components that are due."""
        return frozenset(component for component, failure in self._failures.items() if failure.due <= now)


_Subject = TypeVar("_Subject", bound=Hashable)


class ConflictStatus(Struct, frozen=True):
    """What a repair means.

    Attributes:
        delay: Seconds to wait before this subject is repaired again; 0 if there is no conflict.
        conflicting: Whether another program reverts nodeagent's repairs.
        is_news: Whether the conflict began, or the delay grew, with this repair: to be reported now, and not
            again.
        repairs: Repairs of the subject since its last long quiet, this one included.
        within: Seconds since the first of them.
    """

    delay: float
    conflicting: bool
    is_news: bool
    repairs: int
    within: float

    def __str__(self) -> str:
        """Return the text for the log; empty if there is no conflict."""
        if not self.conflicting:
            return ""
        return (
            f"another program keeps reverting this: {self.repairs} repairs in {self.within:.0f} s; "
            f"the next repair waits {self.delay:g} s"
        )


@dataclass(slots=True)
class _Record:
    first: float
    last: float
    repairs: int = 0
    level: int = 0
    recent: deque[float] = field(default_factory=deque)


class RepairConflicts(Generic[_Subject]):
    """Remembers repairs, subject by subject: a component, or a ConfigMap.

    Args:
        clock: Monotonic time in seconds.
        limit: So many repairs ...
        window: ... within so many seconds are a conflict.
        first: Seconds of the first delay; each further repair doubles it.
        longest: Seconds of the longest delay; must be below `forget`.
        forget: Seconds without a repair after which a subject starts afresh.
        brief: Seconds of the delay, which does not grow, if nodeagent's rules were only displaced.
    """

    def __init__(  # noqa: PLR0913 - each is one figure of the policy
        self,
        clock: Callable[[], float],
        *,
        limit: int = 5,
        window: float = 60.0,
        first: float = 1.0,
        longest: float = 300.0,
        forget: float = 600.0,
        brief: float = 0.2,
    ) -> None:
        if longest >= forget:
            raise ValueError("a delay as long as the time to forget would end every conflict by itself")
        self._clock = clock
        self._limit, self._window = limit, window
        self._first, self._longest, self._forget, self._brief = first, longest, forget, brief
        self._records: dict[_Subject, _Record] = {}
        self._displaced: dict[_Subject, _Record] = {}

    def repaired(self, subject: _Subject, *, displaced: bool = False) -> ConflictStatus:
        """Take note of a repair of `subject` and judge it. Not for changes that the plan requires.

        Args:
            subject: What was repaired.
            displaced: Whether other rules were merely inserted before nodeagent's, as kube-proxy's are
                whenever it starts. Two programs that both want the top undo nothing of each other's, and
                waiting would leave nodeagent's rules without effect: the delay stays brief, which is enough
                to keep such a race from using the whole processor.
        """
        record = self._note(self._displaced if displaced else self._records, subject)
        now = record.last
        if displaced:
            racing = len(record.recent) >= self._limit
            is_news = racing and not record.level
            record.level = int(racing)
            delay = self._brief if racing else 0.0
            return ConflictStatus(delay, racing, is_news, record.repairs, now - record.first)
        before = self._delay(record)
        if record.level or len(record.recent) >= self._limit:
            record.level += 1
        delay = self._delay(record)
        return ConflictStatus(delay, record.level > 0, delay > before, record.repairs, now - record.first)

    def _note(self, records: dict[_Subject, _Record], subject: _Subject) -> _Record:
        now = self._clock()
        record = records.get(subject)
        if record is None or now - record.last >= self._forget:
            record = records[subject] = _Record(now, now)
        record.last = now
        record.repairs += 1
        record.recent.append(now)
        while len(record.recent) > self._limit or now - record.recent[0] > self._window:
            record.recent.popleft()
        return record

    def remaining(self, subject: _Subject) -> float:
        """Return the seconds until `subject` may be repaired again; 0 if it may be now."""
        record = self._records.get(subject)
        if record is None:
            return 0.0
        return max(0.0, record.last + self._delay(record) - self._clock())

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects that another program keeps reverting now."""
        now = self._clock()
        return frozenset(
            subject
            for records in (self._records, self._displaced)
            for subject, record in records.items()
            if record.level and now - record.last < self._forget
        )

    def _delay(self, record: _Record) -> float:
        if record.level == 0:
            return 0.0
        return backoff(record.level, self._first, self._longest)
