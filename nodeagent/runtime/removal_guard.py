"""Holds back a change of the API's answer that would remove most of what is served: it may be a mistake.

An API server that was restored from an old backup, or a selector that matches too much, removes thousands of
objects at once. After a minute it is believed. What one namespace alone removes is made at once: it can be on
purpose, and the changes of others would wait for it. For the same reason, they wait at most a minute of ten.
"""

import logging
from collections import Counter
from collections.abc import Callable

from nodeagent.model.desired import Desired, Verdict

_LOG = logging.getLogger("nodeagent")

_AT_LEAST = 20
"""Hostnames, or load balancers: of fewer, half are soon removed on purpose."""
_SECONDS = 60.0
_OF_SECONDS = 600.0


class RemovalGuard:
    """Compares each plan with the one before.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._objects: object = None
        self._left = _SECONDS
        self._renewed_at = -_OF_SECONDS
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
        now = self._clock()
        if not reason or (self.until is None and not changed):
            if self.until is not None:
                self._left = self.until - now
            self.until, self.reason = None, ""
            return False
        if self.until is None:
            if now - self._renewed_at >= _OF_SECONDS:
                self._left, self._renewed_at = _SECONDS, now
            if self._left <= 0:
                return False
            self.until, self.reason = now + self._left, reason
            _LOG.warning("Held back a removal for up to a minute", extra={"fields": {"reason": reason}})
        if now < self.until:
            return True
        self._left = 0.0
        self.until, self.reason = None, ""
        _LOG.warning("Made a removal that was held back", extra={"fields": {"reason": reason}})
        return False


def _removes(before: Desired, after: Desired) -> str:
    """Return what of most of it would be removed; empty if it is less than half."""
    were, are = _of_load_balancers(before), _of_load_balancers(after)
    for what, had, has, namespaces in (
        ("hostnames", len(before.hosts), len(after.hosts), _of_names),
        ("load balancers", len(were), len(are), _of_load_balancers),
    ):
        if had < _AT_LEAST or 2 * has >= had:
            continue
        if not _concerns_one(Counter(namespaces(before)), Counter(namespaces(after))):
            return (
                f"{had - has} of {had} {what} would be removed by one change of the API's objects, and are "
                "within a minute; if that is a mistake, restore the objects"
            )
    return ""


def _concerns_one(before: Counter[str], after: Counter[str]) -> bool:
    """Whether less than half is removed without the namespace that loses the most; false for the only one.

    Otherwise, a tenant with most of the hostnames could hold back the changes of all others at any time.
    """
    most = max(before, key=lambda namespace: before[namespace] - after[namespace], default="")
    had = before.total() - before[most]
    has = sum(min(before[namespace], after[namespace]) for namespace in before.keys() - {most})
    return had > 0 and 2 * has >= had


def _of_names(desired: Desired) -> list[str]:
    return [each.claimed_by.namespace for each in desired.names if each.verdict is Verdict.SERVED]


def _of_load_balancers(desired: Desired) -> list[str]:
    return [each.load_balancer.namespace for each in desired.load_balancers if each.verdict is Verdict.SERVED]
