"""Holds back a change of the API's answer that would remove most of what is served: it may be a mistake.

An API server that was restored from an old backup, or a selector that matches too much, removes thousands of
objects at once. After a minute it is believed.
"""

import logging
from collections.abc import Callable

from nodeagent.model.desired import Desired, Verdict

_LOG = logging.getLogger("nodeagent")

_AT_LEAST = 20
"""Hostnames, or load balancers: of fewer, half are soon removed on purpose."""
_SECONDS = 60.0


class RemovalGuard:
    """Compares each plan with the one before.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._objects: object = None
        self.until: float | None = None
        """When the removal is believed (the clock's seconds); None if nothing is held back."""
        self.reason = ""
        """What is held back, for a person."""

    def holds(self, before: Desired | None, after: Desired, objects: object) -> bool:
        """Whether to keep `before` for now.

        Args:
            before: The plan that is in effect; None for the first one, which nothing holds back.
            after: The new one.
            objects: The cluster's objects that it is made of, by identity: a removal is held back only if
                they changed since the last call. DNS, say, or a configuration may remove anything at once.
        """
        changed, self._objects = objects is not self._objects, objects
        reason = _removes(before, after) if before is not None else ""
        if not reason or (self.until is None and not changed):
            self.until, self.reason = None, ""
            return False
        if self.until is None:
            self.until, self.reason = self._clock() + _SECONDS, reason
            _LOG.warning("Held back a removal for a minute", extra={"fields": {"reason": reason}})
        if self._clock() < self.until:
            return True
        self.until, self.reason = None, ""
        _LOG.warning("Made a removal that was held back", extra={"fields": {"reason": reason}})
        return False


def _removes(before: Desired, after: Desired) -> str:
    """Return what of most of it would be removed; empty if it is less than half."""
    for what, count in (("hostnames", _names), ("load balancers", _load_balancers)):
        had, has = count(before), count(after)
        if had >= _AT_LEAST and 2 * has < had:
            return (
                f"{had - has} of {had} {what} would be removed by one change of the API's objects; if that "
                "is on purpose, restart this program, or wait a minute"
            )
    return ""


def _names(desired: Desired) -> int:
    return len(desired.hosts)


def _load_balancers(desired: Desired) -> int:
    return sum(decision.verdict is Verdict.SERVED for decision in desired.load_balancers)
