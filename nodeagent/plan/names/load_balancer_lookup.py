"""Which load balancer serves an object that claims hostnames (docs/decisions/0014-whose-name.md). Pure.

It is known by the object's own status, by the class that the configuration gives to a Service, or because
only one load balancer sends PROXY: the only one that is listed, if any is. Where there are several, DNS alone
chooses. Nothing that another object says counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Self
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import astuple

from nodeagent.config.options import ClassService
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Conclusion, skipped
from nodeagent.model.objects import Age, LoadBalancerPoint, ObjectRef
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan

_MOST_REMEMBERED = 4096
_Point = IPAddress | str
"""An address, or a hostname, in the status of an object."""


class LoadBalancerHints(Struct, frozen=True, eq=False, weakref=True):
    """What objects say about the load balancer that serves them.

    All that say the same share one value (`one_of`), compared by identity: hashing the addresses of each of
    ten thousand Ingresses costs more than all else.

    Attributes:
        points, problems: those of its status, which `status` names for reasons.
        ingress_class, controller: None where they are unknown (IngressClass.spec.controller).
        gateway: the Gateway that the object is attached to.
        service: the path of the object, if it is the load balancer's own Service.
        unattached: why nothing serves it, if so.
    """

    points: tuple[LoadBalancerPoint, ...] = ()
    problems: tuple[str, ...] = ()
    status: str = "its status.loadBalancer"
    ingress_class: str | None = None
    controller: str | None = None
    gateway: ObjectRef | None = None
    service: str = ""
    unattached: str = ""


_HINTS: WeakValueDictionary[tuple[object, ...], LoadBalancerHints] = WeakValueDictionary()


def one_of(hints: LoadBalancerHints) -> LoadBalancerHints:
    """Return the one value that says this, as long as a claim has it."""
    return _HINTS.setdefault(astuple(hints), hints)


class Claim(Struct, frozen=True):
    """One object claims hostnames: canonical, each once.

    `excluded` is why it is excluded, if it is, and `excluded_in` the namespace that excluded it.
    `number` is its place among the claims of one object.
    """

    ref: ObjectRef
    age: Age
    names: tuple[str, ...]
    hints: LoadBalancerHints
    excluded: str | None = None
    excluded_in: str = ""
    number: int = 0


class Choice(Struct, frozen=True, eq=False):
    """Load balancers among which DNS can choose, by each address to which it, or a hosts line, can lead.

    One value is shared by all objects that have this choice.
    """

    by_address: Mapping[IPAddress, LoadBalancerPlan]


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of an object.

    Attributes:
        load_balancer: the load balancer; None if there is none, or if only DNS can say which one it is.
        conclusion: why there is none, or why only DNS can say it.
        how: how it was found, unless by the object's own status or as the only candidate.
        named: whether the object or the configuration names it; else it is the only one.
        choice: those that DNS can choose instead.
    """

    load_balancer: LoadBalancerPlan | None
    conclusion: Conclusion | None = None
    how: str = ""
    named: bool = True
    choice: Choice | None = None


class LoadBalancerLookup:
    """Finds the load balancer of each object among these. Immutable.

    `configured` is the option `loadBalancers.ingressClasses`; an equal choice of `before` stays the same
    object. DNS chooses among `choice` if nothing says which one it is.
    """

    def __init__(
        self,
        load_balancers: tuple[LoadBalancerPlan, ...] = (),
        configured: Sequence[ClassService] = (),
        before: Self | None = None,
    ) -> None:
        self.load_balancers = load_balancers
        self._configured = {entry.ingress_class: entry for entry in reversed(configured)}
        self._by_path = {plan.service.ref.path: plan for plan in load_balancers}
        self._by_point = _by_point(load_balancers)
        self._by_gateway = {
            (plan.service.gateway_namespace or plan.service.ref.namespace, plan.service.gateway): plan
            for plan in sorted(load_balancers, key=_served_first, reverse=True)
            if plan.service.gateway
        }
        proxies = sorted((plan for plan in load_balancers if plan.proxy), key=lambda plan: plan.rank)
        listed = [plan for plan in proxies if plan.listed] or proxies
        self._sole = listed[0] if len(listed) == 1 else None
        self._any = bool(proxies)
        served = [plan for plan in proxies if plan.is_served]
        others = any(plan is not self._sole for plan in served)
        self.choice: Choice | None = _choice_of(served if others else (), before.choice if before else None)
        # Most objects say the same.
        self.match = lru_cache(_MOST_REMEMBERED)(self._find)

    def _find(self, hints: LoadBalancerHints) -> LoadBalancerMatch:
        """Return what an object's own hints and the configuration say: the first that says something."""
        if hints.unattached:
            return LoadBalancerMatch(None, skipped("NotAttached", hints.unattached))
        own = self._by_path.get(hints.service)
        if hints.gateway:  # what an implementation made for it has its label
            own = self._by_gateway.get((hints.gateway.namespace, hints.gateway.name))
        by_class = self._by_configured_class(hints)
        points = _keys(hints.points)
        if at_points := [found for key in points if (found := self._by_point.get(key))]:
            # If several Services share an address, the one that is named is meant; otherwise the first.
            named = (own, by_class.load_balancer if by_class else None)
            plans = [next((plan for plan in named if plan in found), found[0]) for found in at_points]
            # If it reports several addresses, the one that the relay serves is meant.
            return LoadBalancerMatch(min(plans, key=_served_first))
        if own is not None:
            return LoadBalancerMatch(own)
        if points:
            reported = ", ".join(sorted(map(str, points)))
            reason = f"{hints.status} names {reported}: no LoadBalancer Service with TCP ports publishes it"
            return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
        if hints.problems:
            return LoadBalancerMatch(None, skipped("BadStatus", "; ".join(hints.problems)))
        return by_class or self._by_number(hints)

    def _by_number(self, hints: LoadBalancerHints) -> LoadBalancerMatch:
        """Return the only one that sends PROXY; of several, what DNS chooses."""
        if self._sole is not None:
            how = f"{self._sole.service.ref}, the only listed one" if self.choice else ""
            return LoadBalancerMatch(self._sole, how=how, named=False, choice=self.choice)
        if not self._any:
            reason = "no load balancer of this cluster sends PROXY"
            return LoadBalancerMatch(None, skipped("NoProxyLoadBalancer", reason))
        reason = (
            f"{hints.status} is empty, and several load balancers send PROXY: only DNS can say which one "
            "serves it, or loadBalancers.ingressClasses"
        )
        return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason), choice=self.choice)

    def _by_configured_class(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        for name in (hints.ingress_class, hints.controller):
            entry = self._configured.get(name) if name else None
            if entry is None:
                continue
            plan = self._by_path.get(entry.path)
            if plan is not None:
                how = f"{plan.service.ref} by loadBalancers.ingressClasses ({name})"
                return LoadBalancerMatch(plan, how=how)
            reason = (
                f"loadBalancers.ingressClasses gives {name} to Service {entry.path}: "
                "no LoadBalancer Service has that name"
            )
            return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
        return None


def _choice_of(plans: Sequence[LoadBalancerPlan], before: Choice | None) -> Choice | None:
    """`plans` are in order: if an address leads to several, the first has it. None for no plans."""
    found: dict[IPAddress, LoadBalancerPlan] = {}
    for plan in plans:
        for address in (*plan.own_addresses, *plan.hosts_addresses):
            found.setdefault(address, plan)
    if not plans:
        return None
    return before if before is not None and before.by_address == found else Choice(found)


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[_Point, list[LoadBalancerPlan]]:
    """Return the load balancers with TCP ports at each address and hostname, by precedence."""
    found: dict[_Point, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=lambda plan: plan.rank):
        # Controllers report externalIPs too; those count for which the load balancer's own decision says so.
        for key in _keys(plan.service.points) | {*plan.decision.addresses} if plan.service.tcp_ports else ():
            found.setdefault(key, []).append(plan)
    return found


def _keys(points: Sequence[LoadBalancerPoint]) -> set[_Point]:
    keys: set[_Point] = {point.ip for point in points if point.ip is not None}
    return keys | {point.hostname.lower().removesuffix(".") for point in points if point.hostname}


def _served_first(plan: LoadBalancerPlan) -> tuple[bool, int]:
    return (not plan.is_served, plan.rank)
