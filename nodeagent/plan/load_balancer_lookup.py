"""Which load balancer serves an object that asks for names (docs/decisions/0014-whose-name.md).

The object's own status knows best. Where it says nothing, its class does: by the configuration, or because
older Ingresses of the class report a load balancer. A status is written by the controller, under rights that
who writes Ingresses does not have. Where that leaves several, DNS chooses among them.
Nobody's newer object changes the answer for an older one: what an object is judged by is older than itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodeagent.config.options import ClassService
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import LoadBalancerPoint, ObjectRef
from nodeagent.plan.claims.claim import Claim, LoadBalancerHints
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.precedence import by_age

_SERVED_OTHERWISE = frozenset(
    {"IPModeProxy", "HostnameOnly", "NodeAddress", "FamilyNotSpoken", "AddressInUse", "PortTaken"}
)
"""Codes of load balancers that are reached without nodeagent, or on other nodes. A newer one that is served
here must not get what is theirs; a pending one, in contrast, has nothing yet."""

_Key = TypeVar("_Key")
_Age = tuple[bool, float, str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Load balancers among which DNS can choose; one value is shared by all objects that have this choice.

    `by_address` has them by each address that DNS, or a standing hosts line, can lead to.
    """

    by_address: Mapping[IPAddress, LoadBalancerPlan]
    addresses: frozenset[IPAddress]


@dataclass(frozen=True, slots=True)
class LoadBalancerMatch:
    """The load balancer, or None and why there is none; with a reason, only DNS can say that it is that one.

    `how` tells the way it was found, where it was not the object's own status and not for want of choice.
    `choice` has the others that it can be as well, if DNS says so.
    """

    load_balancer: LoadBalancerPlan | None
    code: str = ""
    reason: str = ""
    how: str = ""
    choice: Choice | None = None


class LoadBalancerLookup:
    """Finds the load balancer for each of many objects; knows what all of them together tell.

    Args:
        claims: all of them: what some report is evidence for others.
        load_balancers: all of them.
        configured: the option `loadBalancers.ingressClasses`.
    """

    def __init__(
        self,
        claims: Iterable[Claim],
        load_balancers: Sequence[LoadBalancerPlan],
        configured: Sequence[ClassService] = (),
    ) -> None:
        self._found: dict[LoadBalancerHints, LoadBalancerMatch | None] = {}
        self._configured = {entry.ingress_class: entry for entry in reversed(configured)}
        self._by_path = {plan.service.ref.path: plan for plan in load_balancers}
        self._proxies = sorted((plan for plan in load_balancers if plan.proxy), key=lambda plan: plan.rank)
        self._by_point = _by_point(load_balancers)
        self._by_gateway = {
            (plan.service.ref.namespace, plan.service.gateway): plan
            for plan in sorted(load_balancers, key=_served_last)
            if plan.service.gateway
        }
        self._first = _first_with_a_place(self._proxies)
        served = [plan for plan in self._proxies if plan.is_served]
        others = any(plan is not self._first for plan in served)
        self._choice = _choice_of(served) if others else None
        self._served = _choice_of(served) if served else None
        # Of each class, the load balancers that Ingresses of it report, with the age of its first report.
        self._learned: dict[str, dict[str, _Age]] = {}
        # Of each load balancer, the classes and controllers of what reports it, each with that age.
        self._serves: dict[str, dict[tuple[str, str | None], _Age]] = {}
        self._learn(claims)

    def of(self, claim: Claim) -> LoadBalancerMatch:
        """The load balancer of what asks for names: the first way that leads to one or to a reason."""
        hints = claim.hints
        if hints not in self._found:
            self._found[hints] = (
                _unattached(hints)
                or self._by_status(hints)
                or self._by_gateway_name(hints.gateway)
                or _unusable_status(hints)
                or self._by_configured_class(hints)
            )
        return self._found[hints] or self._by_learned_class(claim) or self._by_only_candidate(claim)

    def _learn(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            hints = claim.hints
            ingress_class = hints.ingress_class
            if not ingress_class or not hints.points:
                continue
            found = self._by_status(hints)
            if found and found.load_balancer:
                path, age = found.load_balancer.service.ref.path, by_age(claim)
                _keep_older(self._learned.setdefault(ingress_class, {}), path, age)
                _keep_older(self._serves.setdefault(path, {}), (ingress_class, hints.controller), age)

    def _by_status(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        at_points = [found for key in _keys(hints.points) if (found := self._by_point.get(key))]
        if not at_points:
            return None
        # Where several Services share an address, the one is meant that is named below; else the first.
        plans = [self._named(hints, found) or found[0] for found in at_points]
        # Where it reports several addresses, the one that the relay serves is meant.
        return LoadBalancerMatch(min(plans, key=_served_first))

    def _named(
        self, hints: LoadBalancerHints, sharing: Sequence[LoadBalancerPlan]
    ) -> LoadBalancerPlan | None:
        """Of Services that share an address: the Gateway's own one, or the one configured for the class."""
        for found in (
            self._by_gateway_name(hints.gateway),
            self._by_configured_class(hints) if len(sharing) > 1 else None,
        ):
            if found and found.load_balancer in sharing:
                return found.load_balancer
        return None

    def _by_gateway_name(self, gateway: ObjectRef | None) -> LoadBalancerMatch | None:
        """By the label with which an implementation marks the Service that it made for a Gateway."""
        plan = self._by_gateway.get((gateway.namespace, gateway.name)) if gateway else None
        return LoadBalancerMatch(plan) if plan else None

    def _by_configured_class(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        for name in (hints.ingress_class, hints.controller):
            entry = self._configured.get(name) if name else None
            if entry is None:
                continue
            plan = self._by_path.get(entry.path)
            if plan is not None:
                return LoadBalancerMatch(
                    plan, how=f"{plan.service.ref} by loadBalancers.ingressClasses ({name})"
                )
            reason = (
                f"loadBalancers.ingressClasses gives {name} to Service {entry.path}: "
                "no LoadBalancer Service is called so"
            )
            return LoadBalancerMatch(None, "UnknownLoadBalancer", reason)
        return None

    def _by_learned_class(self, claim: Claim) -> LoadBalancerMatch | None:
        """The load balancer that older Ingresses of the class report; of several, the first report's."""
        ingress_class = claim.hints.ingress_class
        learned = self._learned.get(ingress_class, {}) if ingress_class else {}
        older = sorted((age, path) for path, age in learned.items() if _is_evidence(age, claim))
        if not older:
            return None
        plans = [self._by_path[path] for _, path in older]
        how = f"{plans[0].service.ref} by what other Ingresses of class {ingress_class} report"
        # Anyone's older Ingress can have taught that: DNS may know better.
        served = any(plan.is_served for plan in plans)
        return LoadBalancerMatch(plans[0], how=how, choice=self._choice if served else self._served)

    def _by_only_candidate(self, claim: Claim) -> LoadBalancerMatch:
        """The only one that sends PROXY; of several the first with a place, unless DNS chooses another."""
        first = self._first
        if first is None:
            return LoadBalancerMatch(
                None, "NoProxyLoadBalancer", "no load balancer of this cluster sends PROXY"
            )
        others = self._only_others(first, claim)
        if others:
            hints = claim.hints
            mine = hints.ingress_class or hints.controller
            reason = (
                f"{hints.status} is empty, and the first load balancer that sends PROXY, "
                f"{first.service.ref}, serves class {others} and not {mine}: see loadBalancers.ingressClasses"
            )
            return LoadBalancerMatch(first, "OtherClass", reason, choice=self._served)
        how = f"{first.service.ref}, the first of several that send PROXY" if self._choice else ""
        return LoadBalancerMatch(first, how=how, choice=self._choice)

    def _only_others(self, plan: LoadBalancerPlan, claim: Claim) -> str:
        """The classes that the load balancer is known to serve, when the object is of none of them."""
        known = self._serves.get(plan.service.ref.path, {})
        serves = [key for key, age in known.items() if _is_evidence(age, claim)]
        hints = claim.hints
        if hints.ingress_class:
            is_one = any(name == hints.ingress_class for name, _ in serves)
        elif hints.controller:
            is_one = any(controller in {hints.controller, None} for _, controller in serves)
        else:
            is_one = True
        return "" if is_one else ", ".join(sorted(name for name, _ in serves))


def _first_with_a_place(plans: Sequence[LoadBalancerPlan]) -> LoadBalancerPlan | None:
    """The first that is served, here or without nodeagent; the first at all if none is."""
    placed = (plan for plan in plans if plan.is_served or plan.decision.code in _SERVED_OTHERWISE)
    return next(placed, plans[0] if plans else None)


def _keep_older(ages: dict[_Key, _Age], key: _Key, age: _Age) -> None:
    known = ages.get(key)
    if known is None or age < known:
        ages[key] = age


def _is_evidence(age: _Age, claim: Claim) -> bool:
    """Whether what was reported by an object of that age counts for a claim: a newer one changes nothing.

    Objects in files have no ages: there, all of them count.
    """
    undated = age[0] and claim.created is None
    return undated or age < by_age(claim)


def _choice_of(plans: Sequence[LoadBalancerPlan]) -> Choice:
    """`plans` are in order: where an address leads to several, the first has it."""
    found: dict[IPAddress, LoadBalancerPlan] = {}
    for plan in plans:
        for address in (*plan.own_addresses, *plan.hosts_addresses):
            found.setdefault(address, plan)
    return Choice(found, frozenset(found))


def _unattached(hints: LoadBalancerHints) -> LoadBalancerMatch | None:
    reason = hints.unattached
    return LoadBalancerMatch(None, "NotAttached", reason) if reason else None


def _unusable_status(hints: LoadBalancerHints) -> LoadBalancerMatch | None:
    reported = sorted(_keys(hints.points))
    if reported:
        reason = f"{hints.status} names {', '.join(reported)}: no LoadBalancer Service has that"
        return LoadBalancerMatch(None, "UnknownLoadBalancer", reason)
    if hints.problems:
        return LoadBalancerMatch(None, "BadStatus", "; ".join(hints.problems))
    return None


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[str, list[LoadBalancerPlan]]:
    """The load balancers at each address and hostname, the first by precedence first.

    One without TCP ports serves no names: it comes last.
    """
    found: dict[str, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=lambda plan: (not plan.service.tcp_ports, plan.rank)):
        # Controllers report externalIPs too; those count of which the load balancer's own decision says so.
        for key in _keys(plan.service.points) | set(map(str, plan.decision.addresses)):
            found.setdefault(key, []).append(plan)
    return found


def _keys(points: Iterable[LoadBalancerPoint]) -> set[str]:
    points = tuple(points)
    keys = {str(point.ip) for point in points if point.ip is not None}
    return keys | {point.hostname.lower().removesuffix(".") for point in points if point.hostname}


def _served_first(plan: LoadBalancerPlan) -> tuple[bool, int]:
    return (not plan.is_served, plan.rank)


def _served_last(plan: LoadBalancerPlan) -> tuple[bool, int]:
    return (plan.is_served, -plan.rank)
