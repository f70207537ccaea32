"""When a part of the node that failed is tried again: backing off, each part on its own."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from nodeagent.backoff import backoff
from nodeagent.components.component import ComponentName

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_JITTER = 0.2


class Failure(Struct, frozen=True):
    """A part that failed: since when, how often, when it is due again, and why; monotonic seconds."""

    since: float
    attempts: int
    due: float
    reason: str


@dataclass(slots=True)
class Retries:
    """The parts that failed last time."""

    _failures: dict[ComponentName, Failure] = field(default_factory=dict)

    @property
    def failures(self) -> Mapping[ComponentName, Failure]:
        """What failed and has not succeeded since."""
        return dict(self._failures)

    def failed(self, part: ComponentName, reason: str, now: float) -> Failure:
        """Notes a failure; the next try is due after 1 s, 2 s, 4 s and so on up to a minute, with jitter."""
        earlier = self._failures.get(part)
        attempts = earlier.attempts + 1 if earlier else 1
        pause = backoff(attempts, _FIRST_SECONDS, _LONGEST_SECONDS)
        pause *= random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing
        failure = Failure(earlier.since if earlier else now, attempts, now + pause, reason)
        self._failures[part] = failure
        return failure

    def succeeded(self, part: ComponentName) -> Failure | None:
        """Forgets the part's failure and returns it, if there was one."""
        return self._failures.pop(part, None)

    def due(self, now: float) -> frozenset[ComponentName]:
        """The parts whose time has come."""
        return frozenset(part for part, failure in self._failures.items() if failure.due <= now)
