"""Why a hostname that an object claims is not written, whatever DNS says. Pure.

The number of hostnames is limited, in total and per namespace. The oldest claims come first. A claim's age
counts from the time when its load balancer exists as well. So a load balancer that is created later, at an
address that a status already names, puts no claim before those that have their places.
"""

from bisect import bisect_left, insort
from typing import Any

from msgspec import Struct

from nodeagent.config.options import Config, LimitOptions
from nodeagent.model.desired import Verdict
from nodeagent.model.facts import Facts
from nodeagent.plan.dns_verification import allowed
from nodeagent.plan.hostnames import covering, defect, is_wildcard
from nodeagent.plan.load_balancer_lookup import LoadBalancerMatch, MatchedClaim

_LOCAL = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
# The short forms by which every client inside the cluster knows the API server.
_API_SERVER = ("kubernetes", "kubernetes.default", "svc")

Answer = tuple[Verdict, str, str]
"""Verdict, code and reason."""


class NameObstacles(Struct, frozen=True):
    """What forbids a hostname for every claim: in general, by the options, by the user's line."""

    never: Answer | None
    by_options: Answer | None
    by_user_line: Answer | None


_NONE = NameObstacles(None, None, None)


def name_obstacles(name: str, facts: Facts, config: Config) -> NameObstacles:
    """Return what the hostname (canonical) alone says.

    Of the facts, the node's and the API's names count, and the user's own line with this hostname.
    """
    never = _by_form(name) or _by_never_list(name, facts, config)
    if never:
        return NameObstacles(never, None, None)
    by_options = _by_kind(name, facts, config) or _by_options(name, config)
    by_user_line = _by_user_line(name, facts, config)
    return NameObstacles(None, by_options, by_user_line) if by_options or by_user_line else _NONE


def obstacle(obstacles: NameObstacles, opted_out: str, match: LoadBalancerMatch) -> Answer | None:
    """Return the first obstacle of one claim; None if only its verification is left.

    `opted_out` is why its owner or its namespace excludes it; empty if not.
    """
    if obstacles.never:
        return obstacles.never
    if opted_out:
        return Verdict.SKIPPED, "ExcludedByAnnotation", opted_out
    return _by_match(match) or obstacles.by_options or _by_relay(match) or obstacles.by_user_line


def _by_form(name: str) -> Answer | None:
    problem = defect(name.removeprefix("*.") if is_wildcard(name) else name)
    return (Verdict.REFUSED, "BadName", f"never written: {problem}") if problem else None


def _by_never_list(name: str, facts: Facts, config: Config) -> Answer | None:
    if covering(name, _LOCAL):
        whose = "belongs to the node's loopback"
    elif name in facts.node_names:
        whose = "is one of this node's own hostnames"
    elif name in facts.api_server_names:
        whose = "is the API server's hostname"
    elif covering(name, (config.hosts.cluster_domain, *_API_SERVER)):
        whose = "belongs to the cluster's own DNS"
    else:
        return None
    return Verdict.REFUSED, "NeverWritten", f"never written: it {whose}"


def _by_match(match: LoadBalancerMatch) -> Answer | None:
    plan = match.load_balancer
    if plan is None or (match.code and match.choice is None):
        return Verdict.SKIPPED, match.code, match.reason
    if not plan.is_served and match.choice is None:
        return Verdict.SKIPPED, "LoadBalancerNotServed", f"{plan.service.ref}: {plan.decision.reason}"
    return None


def _by_kind(name: str, facts: Facts, config: Config) -> Answer | None:
    if not is_wildcard(name):
        return None
    if facts.takes_wildcards:
        if allowed(name, config.hosts):
            return None
        reason = (
            "not answered: a wildcard record in DNS does not verify the hostnames below it; cover it by "
            "hosts.allow"
        )
        return Verdict.REFUSED, "WildcardNotAllowed", reason
    if config.dnat.backend == "none":
        return Verdict.REFUSED, "Wildcard", "not covered: a hosts file can't hold wildcards, and DNAT is off"
    return Verdict.SKIPPED, "Wildcard", "covered by DNAT alone: a hosts file can't hold wildcards"


def _by_options(name: str, config: Config) -> Answer | None:
    if not config.hosts.enabled:
        if config.dnat.backend == "none":
            return Verdict.REFUSED, "HostsDisabled", "not covered: hosts.enabled is false, and DNAT is off"
        return Verdict.SKIPPED, "HostsDisabled", "hosts.enabled is false: DNAT alone serves it"
    suffix = covering(name, config.hosts.exclude)
    return (Verdict.SKIPPED, "Excluded", f"covered by hosts.exclude: {suffix}") if suffix else None


def _by_relay(match: LoadBalancerMatch) -> Answer | None:
    plan = match.load_balancer
    if plan is not None and not plan.hosts_addresses and match.choice is None:
        return Verdict.SKIPPED, *plan.without_lines
    return None


def _by_user_line(name: str, facts: Facts, config: Config) -> Answer | None:
    line = facts.user_names.get(name)
    if line is None:
        return None
    if line.by_hairpin_proxy:
        reason = (
            f"left to hairpin-proxy's line {line.line_number} of {config.hosts.file}: --adopt takes it over"
        )
        return Verdict.SKIPPED, "HairpinProxyLine", reason
    reason = f"left to line {line.line_number} of {config.hosts.file}, which sets it to {line.address}"
    return Verdict.SKIPPED, "UserLine", reason


Demands = tuple[MatchedClaim, ...]
"""The claims to a hostname without obstacle: of each namespace the one with the first place."""

_Place = tuple[tuple[Any, ...], str, str]
"""The place of a claim in the queue, its namespace and the hostname."""


def _place(claimed: MatchedClaim, name: str) -> _Place:
    return claimed.place(name), claimed.claim.ref.namespace, name


class HostnameLimits:
    """Tracks which hostnames are left out, as claims are added and removed. Sorts only if there are too many.

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
        """Take over the claims that need a place for a hostname from now on, instead of those before."""
        before = self._demands.get(name, ())
        if before == demands:
            return
        self._changed = True
        for claimed in before:
            namespace = claimed.claim.ref.namespace
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]
            if self._queue is not None:
                del self._queue[bisect_left(self._queue, _place(claimed, name))]
        for claimed in demands:
            namespace = claimed.claim.ref.namespace
            self._counts[namespace] = self._counts.get(namespace, 0) + 1
            if self._queue is not None:
                insort(self._queue, _place(claimed, name))
        self._demands.pop(name, None)
        if demands:
            self._demands[name] = demands

    def settle(self) -> set[str]:
        """Work out which hostnames are left out; return those for which that changed."""
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
        """Return why the hostname is left out for the namespace; None if it is not."""
        return self._refused.get((namespace, name))

    def _left_out(self) -> dict[tuple[str, str], Answer]:
        limits = self._limits
        most = max(self._counts.values(), default=0)
        if len(self._demands) <= limits.hostnames and most <= limits.hostnames_per_namespace:
            self._queue = None
            return {}
        if self._queue is None:
            self._queue = sorted(
                _place(claimed, name) for name, demands in self._demands.items() for claimed in demands
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
