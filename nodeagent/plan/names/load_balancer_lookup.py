"""Which load balancer serves an object that claims hostnames (docs/decisions/0014-whose-name.md). Pure.

The object's own status counts most. If it says nothing, its class counts: by the configuration, or because
older Ingresses of the class report a load balancer. The controller writes a status, with rights that authors
of Ingresses do not have. If several load balancers are left, DNS chooses among them.
No newer object changes the answer for an older one: all that decides about an object is older than itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Self
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import astuple

from nodeagent.config.options import ClassService
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Conclusion, bounded, skipped
from nodeagent.model.objects import Age, LoadBalancerPoint, ObjectRef
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan

_SERVED_OTHERWISE = frozenset(
    {"IPModeProxy", "HostnameOnly", "NodeAddress", "FamilyNotSupported", "AddressInUse", "PortTaken"}
)
"""Codes of load balancers that are reached without nodeagent, or on other nodes. A newer one that is served
here must not get what is theirs; a pending one has nothing yet."""


_MOST_REMEMBERED = 4096
_Point = IPAddress | str
"""An address, or a hostname, in the status of an object."""


class LoadBalancerHints(Struct, frozen=True, eq=False, weakref=True):
    """What objects say about the load balancer that serves them.

    All objects that say the same share one value (`one_of`), which is compared by identity: of ten
    thousand Ingresses, most say the same, and hashing the addresses of each costs more than all else.

    `points` and `problems` are those of its status, which `status` names for reasons. `ingress_class` and
    `controller` (IngressClass.spec.controller) are None where they are unknown. `gateway` is the Gateway that
    the object is attached to: a Service may have its name. `service` is the path of the object itself, if it
    is the load balancer's own Service. `unattached` says why nothing serves it, if so.
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
    """Load balancers among which DNS can choose; one value is shared by all objects that have this choice.

    `by_address` has them by each address to which DNS, or an existing hosts line, can lead.
    """

    by_address: Mapping[IPAddress, LoadBalancerPlan]


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of an object.

    Attributes:
        load_balancer: the load balancer; None if there is none.
        conclusion: why there is none, or why only DNS can say that it is that one.
        how: how it was found, unless by the object's own status or as the only candidate.
        guess: neither the object nor the configuration says it, so objects of others can change it.
        choice: the others that DNS can choose instead.
    """

    load_balancer: LoadBalancerPlan | None
    conclusion: Conclusion | None = None
    how: str = ""
    guess: bool = False
    choice: Choice | None = None


Evidence = Mapping[tuple[str, str, str | None], Age]
"""What objects with a class report: the path of a load balancer, with the class and the controller of those
that report it, and the age of the oldest."""


class LoadBalancerLookup:
    """Finds the load balancer of each object among these. Immutable.

    Attributes:
        choice: the load balancers among which DNS chooses if nothing says which one it is.
        choice_of_served: the same, if none of those that are served may be meant.

    Args:
        load_balancers: all of them.
        configured: the option `loadBalancers.ingressClasses`.
        before: another lookup, whose equal choices are kept as the same objects.
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
        # The first that is served, here or without nodeagent; if none is, the first.
        placed = (plan for plan in proxies if plan.is_served or plan.decision.code in _SERVED_OTHERWISE)
        self._first = next(placed, proxies[0] if proxies else None)
        served = [plan for plan in proxies if plan.is_served]
        others = any(plan is not self._first for plan in served)
        self.choice: Choice | None = _choice_of(served if others else (), before.choice if before else None)
        self.choice_of_served: Choice | None = _choice_of(served, before.choice_of_served if before else None)
        # Most objects say the same.
        self._by_hints = lru_cache(_MOST_REMEMBERED)(self._find_by_hints)

    def evidence(self, claims: Iterable[Claim]) -> Evidence:
        """Return which load balancers these report."""
        oldest: dict[LoadBalancerHints, Age] = {}
        for claim in claims:
            if claim.age < oldest.setdefault(claim.hints, claim.age):
                oldest[claim.hints] = claim.age
        serves: dict[tuple[str, str, str | None], Age] = {}
        for hints, age in oldest.items():
            found = self._by_status(hints) if hints.ingress_class and hints.points else None
            if found and found.load_balancer:
                key = found.load_balancer.service.ref.path, hints.ingress_class or "", hints.controller
                serves[key] = min(age, serves.get(key, age))
        return serves

    def match(self, claim: Claim, evidence: Evidence) -> LoadBalancerMatch:
        """Return the load balancer of an object: what its hints say, or else what older objects show."""
        return self._by_hints(claim.hints) or self._by_evidence(claim, evidence)

    def _find_by_hints(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        """Return what an object's own hints and the configuration say: the first that says something."""
        if hints.unattached:
            return LoadBalancerMatch(None, skipped("NotAttached", hints.unattached))
        if hints.service:
            return LoadBalancerMatch(self._by_path[hints.service])
        return (
            self._by_status(hints)
            or self._by_gateway_name(hints.gateway)
            or _unusable_status(hints)
            or self._by_configured_class(hints)
        )

    def _by_evidence(self, claim: Claim, evidence: Evidence) -> LoadBalancerMatch:
        """Return what older objects show for one whose hints say nothing.

        Else the only one that sends PROXY; of several, the first with a place, or what DNS chooses.
        """
        if learned := self._by_learned_class(claim, evidence):
            return learned
        first = self._first
        if first is None:
            reason = "no load balancer of this cluster sends PROXY"
            return LoadBalancerMatch(None, skipped("NoProxyLoadBalancer", reason))
        others = _only_others(first.service.ref.path, evidence, claim)
        if others:
            hints = claim.hints
            mine = hints.ingress_class or hints.controller
            reason = (
                f"{hints.status} is empty, and the first load balancer that sends PROXY, "
                f"{first.service.ref}, serves class {others} and not {mine}: see loadBalancers.ingressClasses"
            )
            conclusion = skipped("OtherClass", reason)
            return LoadBalancerMatch(first, conclusion, guess=True, choice=self.choice_of_served)
        how = f"{first.service.ref}, the first of several that send PROXY" if self.choice else ""
        return LoadBalancerMatch(first, how=how, guess=True, choice=self.choice)

    def _by_status(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        at_points = [found for key in _keys(hints.points) if (found := self._by_point.get(key))]
        if not at_points:
            return None
        # If several Services share an address, the one that is named below is meant; otherwise the first.
        plans = [self._named(hints, found) or found[0] for found in at_points]
        # If it reports several addresses, the one that the relay serves is meant.
        return LoadBalancerMatch(min(plans, key=_served_first))

    def _named(
        self, hints: LoadBalancerHints, sharing: Sequence[LoadBalancerPlan]
    ) -> LoadBalancerPlan | None:
        """Return, of Services that share an address, the Gateway's own, or the class's configured one."""
        for found in (
            self._by_gateway_name(hints.gateway),
            self._by_configured_class(hints) if len(sharing) > 1 else None,
        ):
            if found and found.load_balancer in sharing:
                return found.load_balancer
        return None

    def _by_gateway_name(self, gateway: ObjectRef | None) -> LoadBalancerMatch | None:
        """Return the Service that an implementation made for a Gateway, by the label that it sets."""
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
                "no LoadBalancer Service has that name"
            )
            return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
        return None

    def _by_learned_class(self, claim: Claim, evidence: Evidence) -> LoadBalancerMatch | None:
        """Return the load balancer that the first of older Ingresses of the class reports."""
        ingress_class = claim.hints.ingress_class
        older = sorted(
            (age, path)
            for (path, name, _), age in evidence.items()
            if name == ingress_class and _is_evidence(age, claim)
        )
        if not older:
            return None
        plans = [self._by_path[path] for _, path in older]
        how = bounded(f"{plans[0].service.ref}, as other Ingresses of class {ingress_class} report")
        # Any older Ingress can be the source of that: DNS may know better.
        choice = self.choice if plans[0].is_served else self.choice_of_served
        return LoadBalancerMatch(plans[0], how=how, guess=True, choice=choice)


def _only_others(path: str, evidence: Evidence, claim: Claim) -> str:
    """Return the classes that a load balancer is known to serve, if the object has none of them."""
    serves = [key[1:] for key, age in evidence.items() if key[0] == path and _is_evidence(age, claim)]
    hints = claim.hints
    if hints.ingress_class:
        is_one = any(name == hints.ingress_class for name, _ in serves)
    elif hints.controller:
        is_one = any(controller in {hints.controller, None} for _, controller in serves)
    else:
        is_one = True
    return "" if is_one else ", ".join(sorted(name for name, _ in serves))


def _is_evidence(age: Age, claim: Claim) -> bool:
    """Whether the report of an object of that age counts for a claim: a newer one changes nothing.

    Objects in files have no ages: there, all of them count.
    """
    undated = age[0] and claim.age[0]
    return undated or age < claim.age


def _choice_of(plans: Sequence[LoadBalancerPlan], before: Choice | None) -> Choice | None:
    """`plans` are in order: if an address leads to several, the first has it. None for no plans."""
    if not plans:
        return None
    found: dict[IPAddress, LoadBalancerPlan] = {}
    for plan in plans:
        for address in (*plan.own_addresses, *plan.hosts_addresses):
            found.setdefault(address, plan)
    if before is not None and before.by_address == found:
        return before
    return Choice(found)


def _unusable_status(hints: LoadBalancerHints) -> LoadBalancerMatch | None:
    reported = sorted(map(str, _keys(hints.points)))
    if reported:
        reason = (
            f"{hints.status} names {', '.join(reported)}: no LoadBalancer Service with a TCP port has that"
        )
        return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
    if hints.problems:
        return LoadBalancerMatch(None, skipped("BadStatus", "; ".join(hints.problems)))
    return None


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[_Point, list[LoadBalancerPlan]]:
    """Return the load balancers with TCP ports at each address and hostname, by precedence."""
    found: dict[_Point, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=lambda plan: plan.rank):
        if not plan.service.tcp_ports:
            continue
        # Controllers report externalIPs too; those count for which the load balancer's own decision says so.
        for key in _keys(plan.service.points) | {*plan.decision.addresses}:
            found.setdefault(key, []).append(plan)
    return found


def _keys(points: Sequence[LoadBalancerPoint]) -> set[_Point]:
    keys: set[_Point] = {point.ip for point in points if point.ip is not None}
    return keys | {point.hostname.lower().removesuffix(".") for point in points if point.hostname}


def _served_first(plan: LoadBalancerPlan) -> tuple[bool, int]:
    return (not plan.is_served, plan.rank)
