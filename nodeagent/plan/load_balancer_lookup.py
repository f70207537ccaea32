"""Which load balancer serves an object that claims hostnames (docs/decisions/0014-whose-name.md).

The object's own status counts most. If it says nothing, its class counts: by the configuration, or because
older Ingresses of the class report a load balancer. The controller writes a status, with rights that authors
of Ingresses do not have. If several load balancers are left, DNS chooses among them.
No newer object changes the answer for an older one: all that decides about an object is older than itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Self

from msgspec import Struct

from nodeagent.config.options import ClassService
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import LoadBalancerPoint, ObjectRef
from nodeagent.plan.claims.claim import Claim, LoadBalancerHints
from nodeagent.plan.class_reports import ClassReports
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.precedence import Age, by_age

_SERVED_OTHERWISE = frozenset(
    {"IPModeProxy", "HostnameOnly", "NodeAddress", "FamilyNotSupported", "AddressInUse", "PortTaken"}
)
"""Codes of load balancers that are reached without nodeagent, or on other nodes. A newer one that is served
here must not get what is theirs; a pending one has nothing yet."""


class Choice(Struct, frozen=True, eq=False):
    """Load balancers among which DNS can choose; one value is shared by all objects that have this choice.

    `by_address` has them by each address to which DNS, or an existing hosts line, can lead.
    """

    by_address: Mapping[IPAddress, LoadBalancerPlan]
    addresses: frozenset[IPAddress]


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer, or None and why there is none; with a reason, only DNS can say that it is that one.

    `how` says how it was found, unless by the object's own status or as the only candidate. `guess`: neither
    the object nor the configuration says it, so objects of others can change it. `choice` has the others that
    DNS can choose instead.
    """

    load_balancer: LoadBalancerPlan | None
    code: str = ""
    reason: str = ""
    how: str = ""
    guess: bool = False
    choice: Choice | None = None


class MatchedClaim(Struct, frozen=True, eq=False):
    """A claim and its load balancer; `places` are those of its hostnames if there are several."""

    claim: Claim
    match: LoadBalancerMatch
    places: Mapping[str, int] | None

    @classmethod
    def of(cls, claim: Claim, match: LoadBalancerMatch) -> Self:
        """Return the value."""
        several = len(claim.names) > 1
        return cls(claim, match, {name: place for place, name in enumerate(claim.names)} if several else None)

    def order(self) -> tuple[Any, ...]:
        """Return what sorts all of them: the oldest comes first.

        For a Route that is attached to two Gateways, the load balancer that is relayed does. The rest
        distinguishes objects of two API groups that have the same name.
        """
        claim, plan = self.claim, self.match.load_balancer
        place = (True, 0) if plan is None else (not plan.is_served, plan.rank)
        return (
            *claim.age,
            *place,
            claim.number,
            claim.hints.controller or "",
            claim.names,
            claim.excluded or "",
        )

    def place(self, name: str) -> tuple[Any, ...]:
        """Return what sorts the hostnames of all claims for their places within the limits.

        The later of two ages counts: the claim's and its load balancer's, unless that is a guess.
        """
        plan, own = self.match.load_balancer, self.claim.age
        age = own if plan is None or self.match.guess else max(own, by_age(plan.service))
        return (age, self.order(), 0 if self.places is None else self.places[name])


class LoadBalancerLookup:
    """Finds the load balancer for each of many objects; knows what all of them together report.

    It remembers the claims and its results: a claim is matched again if what decided about it changed.

    Args:
        configured: the option `loadBalancers.ingressClasses`.
    """

    def __init__(self, configured: Sequence[ClassService] = ()) -> None:
        self._configured = {entry.ingress_class: entry for entry in reversed(configured)}
        # By id, which no other claim has while the claim is held here.
        self._matched: dict[int, MatchedClaim] = {}
        # What is found by hints alone, and how many claims have these hints.
        self._found: dict[LoadBalancerHints, LoadBalancerMatch | None] = {}
        self._users: Counter[LoadBalancerHints] = Counter()
        # The claims that are matched by what others report, or without any hint.
        self._by_evidence: dict[int, Claim] = {}
        self._reports = ClassReports()
        # The load balancer that objects with these hints report.
        self._reported: dict[LoadBalancerHints, str] = {}
        self._choice: Choice | None = None
        self._served: Choice | None = None
        self._arrange((), (), ())

    def update(
        self, load_balancers: tuple[LoadBalancerPlan, ...], removed: Iterable[Claim], added: Iterable[Claim]
    ) -> tuple[list[MatchedClaim], list[MatchedClaim]]:
        """Take over all load balancers, and the claims that are gone and that are new.

        Returns:
            The matches that no longer hold, and those that are new.
        """
        removed, added = tuple(removed), tuple(added)
        gone = [self._matched.pop(id(claim)) for claim in removed]
        self._count_users(removed, added)
        again: list[Claim] = []
        if len(load_balancers) != len(self._plans) or not all(map(is_, load_balancers, self._plans)):
            again = self._arrange(load_balancers, removed, added)
        elif self._learn(removed, added):
            again = self._evident()
        new: list[MatchedClaim] = []
        for claim in again:
            before = self._matched[id(claim)]
            match = self._match(claim)
            if match is not before.match and match != before.match:
                gone.append(before)
                new.append(self._keep(claim, match))
        new += [self._keep(claim, self._match(claim)) for claim in added]
        for claim in removed:
            self._by_evidence.pop(id(claim), None)
            if not self._users[claim.hints]:
                self._found.pop(claim.hints, None)
                self._reported.pop(claim.hints, None)
                del self._users[claim.hints]
        return gone, new

    def _keep(self, claim: Claim, match: LoadBalancerMatch) -> MatchedClaim:
        matched = self._matched[id(claim)] = MatchedClaim.of(claim, match)
        return matched

    def _count_users(self, removed: Iterable[Claim], added: Iterable[Claim]) -> None:
        for claim in removed:
            self._users[claim.hints] -= 1
        for claim in added:
            self._users[claim.hints] += 1

    def _evident(self) -> list[Claim]:
        """Return the claims whose matches rest on all load balancers, and on what all claims report."""
        return [claim for claim in self._by_evidence.values() if id(claim) in self._matched]

    def _arrange(
        self, load_balancers: tuple[LoadBalancerPlan, ...], removed: Iterable[Claim], added: Iterable[Claim]
    ) -> list[Claim]:
        """Take over all load balancers and claims; return the earlier claims that are to be matched again.

        What is the same as before stays the same object.
        """
        self._plans = load_balancers
        self._by_path = {plan.service.ref.path: plan for plan in load_balancers}
        self._by_point = _by_point(load_balancers)
        self._by_gateway = {
            (plan.service.ref.namespace, plan.service.gateway): plan
            for plan in sorted(load_balancers, key=_served_last)
            if plan.service.gateway
        }
        proxies = sorted((plan for plan in load_balancers if plan.proxy), key=lambda plan: plan.rank)
        self._first = _first_with_a_place(proxies)
        served = [plan for plan in proxies if plan.is_served]
        others = any(plan is not self._first for plan in served)
        self._choice = _choice_of(served if others else (), self._choice)
        self._served = _choice_of(served, self._served)
        before, self._found = self._found, {}
        for hints in self._users:
            match, earlier = self._by_hints(hints), before.get(hints)
            self._found[hints] = earlier if match == earlier else match
        reported, self._reported = self._reported, {}
        if all(self._path_reported(hints) == path for hints, path in reported.items()):
            self._learn(removed, added)
        else:
            self._reports = ClassReports()
            self._learn((), (*(matched.claim for matched in self._matched.values()), *added))
        other = {hints for hints, found in self._found.items() if found is not before.get(hints)}
        again = [matched.claim for matched in self._matched.values() if matched.claim.hints in other]
        return again + [claim for claim in self._evident() if claim.hints not in other]

    def _learn(self, removed: Iterable[Claim], added: Iterable[Claim]) -> bool:
        """Take over what the claims report; return whether anything was learned from it."""
        for claim in removed:
            if path := self._path_reported(claim.hints):
                self._reports.remove((claim.hints.ingress_class or "", claim.hints.controller, path), claim)
        for claim in added:
            if path := self._path_reported(claim.hints):
                self._reports.add((claim.hints.ingress_class or "", claim.hints.controller, path), claim)
        return self._reports.learn()

    def _path_reported(self, hints: LoadBalancerHints) -> str:
        """Return the load balancer that an object of a class reports; empty without either."""
        path = self._reported.get(hints)
        if path is None:
            found = self._by_status(hints) if hints.ingress_class and hints.points else None
            path = found.load_balancer.service.ref.path if found and found.load_balancer else ""
            self._reported[hints] = path
        return path

    def _match(self, claim: Claim) -> LoadBalancerMatch:
        """Return the load balancer of a claim: the first way that leads to one or to a reason."""
        hints = claim.hints
        if hints not in self._found:
            self._found[hints] = self._by_hints(hints)
        found = self._found[hints]
        if found is not None:
            self._by_evidence.pop(id(claim), None)
            return found
        self._by_evidence[id(claim)] = claim
        return self._by_learned_class(claim) or self._by_only_candidate(claim)

    def _by_hints(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        return (
            _unattached(hints)
            or self._by_status(hints)
            or self._by_gateway_name(hints.gateway)
            or _unusable_status(hints)
            or self._by_configured_class(hints)
        )

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
            return LoadBalancerMatch(None, "UnknownLoadBalancer", reason)
        return None

    def _by_learned_class(self, claim: Claim) -> LoadBalancerMatch | None:
        """Return the load balancer that older Ingresses of the class report.

        Of several, the first report's.
        """
        ingress_class = claim.hints.ingress_class
        learned = self._reports.learned.get(ingress_class, {}) if ingress_class else {}
        older = sorted((age, path) for path, age in learned.items() if _is_evidence(age, claim))
        if not older:
            return None
        plans = [self._by_path[path] for _, path in older]
        how = f"{plans[0].service.ref}, as other Ingresses of class {ingress_class} report"
        # Any older Ingress can be the source of that: DNS may know better.
        choice = self._choice if plans[0].is_served else self._served
        return LoadBalancerMatch(plans[0], how=how, guess=True, choice=choice)

    def _by_only_candidate(self, claim: Claim) -> LoadBalancerMatch:
        """Return the only one that sends PROXY.

        Of several, the first with a place, unless DNS chooses another.
        """
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
            return LoadBalancerMatch(first, "OtherClass", reason, guess=True, choice=self._served)
        how = f"{first.service.ref}, the first of several that send PROXY" if self._choice else ""
        return LoadBalancerMatch(first, how=how, guess=True, choice=self._choice)

    def _only_others(self, plan: LoadBalancerPlan, claim: Claim) -> str:
        """Return the classes that the load balancer is known to serve, if the object has none of them."""
        known = self._reports.serves.get(plan.service.ref.path, {})
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
    """Return the first that is served, here or without nodeagent; if none is, the first."""
    placed = (plan for plan in plans if plan.is_served or plan.decision.code in _SERVED_OTHERWISE)
    return next(placed, plans[0] if plans else None)


def _is_evidence(age: Age, claim: Claim) -> bool:
    """Whether the report of an object of that age counts for a claim: a newer one changes nothing.

    Objects in files have no ages: there, all of them count.
    """
    undated = age[0] and claim.undated
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
    return Choice(found, frozenset(found))


def _unattached(hints: LoadBalancerHints) -> LoadBalancerMatch | None:
    reason = hints.unattached
    return LoadBalancerMatch(None, "NotAttached", reason) if reason else None


def _unusable_status(hints: LoadBalancerHints) -> LoadBalancerMatch | None:
    reported = sorted(_keys(hints.points))
    if reported:
        reason = (
            f"{hints.status} names {', '.join(reported)}: no LoadBalancer Service with a TCP port has that"
        )
        return LoadBalancerMatch(None, "UnknownLoadBalancer", reason)
    if hints.problems:
        return LoadBalancerMatch(None, "BadStatus", "; ".join(hints.problems))
    return None


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[str, list[LoadBalancerPlan]]:
    """Return the load balancers at each address and hostname, the first by precedence first.

    Not those without TCP ports: they serve no hostnames.
    """
    found: dict[str, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=lambda plan: plan.rank):
        if not plan.service.tcp_ports:
            continue
        # Controllers report externalIPs too; those count for which the load balancer's own decision says so.
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
