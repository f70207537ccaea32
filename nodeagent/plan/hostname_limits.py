"""How many hostnames are taken on: in total, and of one namespace. The oldest claims come first.

A claim counts from when its load balancer is there as well: so one that is created later, at an address that
somebody's status names already, brings no claim before those that have their places.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

from nodeagent.config.options import LimitOptions
from nodeagent.model.desired import Verdict
from nodeagent.plan.hostname_obstacles import Answer

Demands = Mapping[str, tuple[Any, ...]]
"""The namespaces in which a hostname is claimed without obstacle, each with the place of its first claim."""

_Place = tuple[tuple[Any, ...], str, str]
"""The place of a claim in the queue, its namespace and the hostname."""


class HostnameLimits:
    """Knows which hostnames are left out, as claims come and go. Without too many of them, nothing is sorted.

    Args:
        limits: the options.
    """

    def __init__(self, limits: LimitOptions) -> None:
        self._limits = limits
        self._demands: dict[str, Demands] = {}
        self._counts: dict[str, int] = {}
        self._queue: list[_Place] | None = None
        self._refused: dict[tuple[str, str], Answer] = {}
        self._changed = False

    def demand(self, name: str, demands: Demands) -> None:
        """Take over what is demanded of a hostname from now on, instead of what was before."""
        before = self._demands.get(name, {})
        if before == demands:
            return
        self._changed = True
        for namespace, order in before.items():
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]
            if self._queue is not None:
                del self._queue[bisect_left(self._queue, (order, namespace, name))]
        for namespace, order in demands.items():
            self._counts[namespace] = self._counts.get(namespace, 0) + 1
            if self._queue is not None:
                insort(self._queue, (order, namespace, name))
        self._demands.pop(name, None)
        if demands:
            self._demands[name] = demands

    def settle(self) -> set[str]:
        """Work out who is left out; return the hostnames for which that changed."""
        if not self._changed:
            return set()
        self._changed = False
        before, self._refused = self._refused, self._left_out()
        return {
            name
            for namespace, name in before.keys() | self._refused.keys()
            if before.get((namespace, name)) != self._refused.get((namespace, name))
        }

    def refusal(self, namespace: str, name: str) -> Answer | None:
        """Return why the hostname is not taken on for the namespace; None if it is."""
        return self._refused.get((namespace, name))

    def _left_out(self) -> dict[tuple[str, str], Answer]:
        limits = self._limits
        most = max(self._counts.values(), default=0)
        if len(self._demands) <= limits.hostnames and most <= limits.hostnames_per_namespace:
            self._queue = None
            return {}
        if self._queue is None:
            self._queue = sorted(
                (order, namespace, name)
                for name, demands in self._demands.items()
                for namespace, order in demands.items()
            )
        in_namespace = Verdict.REFUSED, "TooManyHostnamesInNamespace"
        in_total = (
            Verdict.REFUSED,
            "TooManyHostnames",
            f"{limits.hostnames} hostnames come first (limits.hostnames): DNAT alone serves this one",
        )
        names: set[str] = set()
        taken: dict[str, int] = {}
        refused: dict[tuple[str, str], Answer] = {}
        for _, namespace, name in self._queue:
            if taken.get(namespace, 0) >= limits.hostnames_per_namespace:
                reason = (
                    f"namespace {namespace} has {limits.hostnames_per_namespace} hostnames that come first "
                    "(limits.hostnamesPerNamespace): DNAT alone serves this one"
                )
                refused[namespace, name] = (*in_namespace, reason)
            elif name not in names and len(names) >= limits.hostnames:
                refused[namespace, name] = in_total
            else:
                names.add(name)
                taken[namespace] = taken.get(namespace, 0) + 1
        return refused
