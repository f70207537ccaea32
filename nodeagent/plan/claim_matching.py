"""The load balancer of each claim."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nodeagent.config.options import ClassService
from nodeagent.plan.claim import Claim, LoadBalancerHints
from nodeagent.plan.load_balancer_lookup import Evidence, LoadBalancerLookup, LoadBalancerMatch
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.memory import Memory
from nodeagent.plan.precedence import Age, by_age


class MatchedClaim(Struct, frozen=True, eq=False):
    """A claim and its load balancer; `places` are those of its hostnames if there are several."""

    claim: Claim
    match: LoadBalancerMatch
    places: Mapping[str, int] | None

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


class ClaimMatcher:
    """Finds the load balancer of each claim.

    What claims with the same hints say themselves is found once for all of them. Only if that is nothing does
    it depend on the other claims.

    Args:
        configured: the option `loadBalancers.ingressClasses`.
    """

    def __init__(self, configured: Sequence[ClassService] = ()) -> None:
        self._configured = configured
        self._lookup = LoadBalancerLookup((), configured)
        self._evidence = Evidence()
        self._by_hints: Memory[LoadBalancerHints, _Hinted] = Memory()
        self._by_evidence: Memory[int, LoadBalancerMatch] = Memory()
        self._matched: dict[int, MatchedClaim] = {}

    def match(
        self, claims: Sequence[Claim], load_balancers: tuple[LoadBalancerPlan, ...]
    ) -> Iterable[MatchedClaim]:
        """Return each claim with its load balancer; a match that stays is the same object."""
        if load_balancers is not self._lookup.load_balancers:
            self._lookup = LoadBalancerLookup(load_balancers, self._configured, self._lookup)
        lookup = self._lookup
        oldest: dict[LoadBalancerHints, Age] = {}
        for claim in claims:
            known = oldest.get(claim.hints)
            if known is None or claim.age < known:
                oldest[claim.hints] = claim.age
        by_hints = self._by_hints.results(
            lambda hints, _: _Hinted(lookup.by_hints(hints), lookup.reported(hints)),
            {hints: hints for hints in oldest},
            context=lookup,
        )
        evidence = Evidence.of(
            (hints, hinted.reported, oldest[hints]) for hints, hinted in by_hints.items() if hinted.reported
        )
        if evidence != self._evidence:
            self._evidence = evidence
        evidence = self._evidence
        by_evidence = self._by_evidence.results(
            lambda _, claim: lookup.by_evidence(claim, evidence),
            {id(claim): claim for claim in claims if by_hints[claim.hints].match is None},
            context=(lookup, evidence),
        )
        before, self._matched = self._matched, {}
        for claim in claims:
            match = by_hints[claim.hints].match or by_evidence[id(claim)]
            matched = before.get(id(claim))
            if matched is None or matched.match is not match:
                several = len(claim.names) > 1
                places = {name: place for place, name in enumerate(claim.names)} if several else None
                matched = MatchedClaim(claim, match, places)
            self._matched[id(claim)] = matched
        return self._matched.values()


class _Hinted(Struct, frozen=True):
    """What objects with the same hints say: their load balancer, and the path of the one that they report."""

    match: LoadBalancerMatch | None
    reported: str
