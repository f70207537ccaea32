"""The load balancer of each claim, kept from one pass to the next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from nodeagent.config.options import ClassService
from nodeagent.plan.claim import Claim, LoadBalancerHints
from nodeagent.plan.load_balancer_lookup import Evidence, LoadBalancerLookup, LoadBalancerMatch
from nodeagent.plan.load_balancers import LoadBalancerPlan
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


@dataclass(slots=True, eq=False)
class _Group:
    """The claims with the same hints.

    Attributes:
        match: what the hints alone say.
        reported: the load balancer that objects with these hints report; empty if they don't count.
        claims: by id, which no other claim has while the claim is held here.
        oldest: the age of the oldest; None if there is none.
    """

    match: LoadBalancerMatch | None
    reported: str
    claims: dict[int, Claim] = field(default_factory=dict)
    oldest: Age | None = None

    def update(self, removed: Sequence[Claim], added: Sequence[Claim]) -> bool:
        """Take over what is gone and what is new; return whether the group reports something else now."""
        before = self.oldest
        for claim in removed:
            del self.claims[id(claim)]
        self.claims |= {id(claim): claim for claim in added}
        if any(claim.age == before for claim in removed):
            # Once for all of them: thousands of claims can have the same hints.
            self.oldest = min((claim.age for claim in self.claims.values()), default=None)
        else:
            known = () if before is None else (before,)
            self.oldest = min((*known, *(claim.age for claim in added)), default=None)
        return bool(self.reported) and self.oldest != before


class ClaimMatcher:
    """Remembers claims and their load balancers: a claim is matched again if what decided about it changed.

    Args:
        configured: the option `loadBalancers.ingressClasses`.
    """

    def __init__(self, configured: Sequence[ClassService] = ()) -> None:
        self._configured = configured
        self._lookup = LoadBalancerLookup((), configured)
        self._evidence = Evidence()
        self._groups: dict[LoadBalancerHints, _Group] = {}
        self._matched: dict[int, MatchedClaim] = {}

    def update(
        self, load_balancers: tuple[LoadBalancerPlan, ...], removed: Sequence[Claim], added: Sequence[Claim]
    ) -> tuple[list[MatchedClaim], list[MatchedClaim]]:
        """Take over all load balancers, and the claims that are gone and that are new.

        Returns:
            The matches that no longer hold, and those that are new.
        """
        gone = [self._matched.pop(id(claim)) for claim in removed]
        other = load_balancers is not self._lookup.load_balancers
        again = self._look_up_in(load_balancers) if other else []
        if self._regroup(removed, added) or other:
            groups = self._groups.items()
            evidence = Evidence.of(
                (hints, group.reported, group.oldest)
                for hints, group in groups
                if group.reported and group.oldest
            )
            if evidence != self._evidence and not other:
                again = [group for _, group in groups if group.match is None]
            self._evidence = evidence
        new: list[MatchedClaim] = []
        for group in again:
            for key in group.claims.keys() & self._matched.keys():
                before = self._matched[key]
                match = self._match(before.claim, group)
                if match != before.match:
                    gone.append(before)
                    new.append(self._keep(before.claim, match))
        new += [self._keep(claim, self._match(claim, self._groups[claim.hints])) for claim in added]
        return gone, new

    def _look_up_in(self, load_balancers: tuple[LoadBalancerPlan, ...]) -> list[_Group]:
        """Match all groups among these; return those whose claims are to be matched again."""
        self._lookup = LoadBalancerLookup(load_balancers, self._configured, self._lookup)
        again: list[_Group] = []
        for hints, group in self._groups.items():
            before, group.match = group.match, self._lookup.by_hints(hints)
            group.reported = self._lookup.reported(hints)
            if group.match is None or group.match != before:
                again.append(group)
        return again

    def _regroup(self, removed: Iterable[Claim], added: Iterable[Claim]) -> bool:
        """Take over the claims; return whether they report something else now."""
        changed = False
        gone, new = _by_hints(removed), _by_hints(added)
        for hints in {**gone, **new}:
            group = self._groups.get(hints)
            if group is None:
                group = _Group(self._lookup.by_hints(hints), self._lookup.reported(hints))
                self._groups[hints] = group
            changed |= group.update(gone.get(hints, ()), new.get(hints, ()))
            if not group.claims:
                del self._groups[hints]
        return changed

    def _match(self, claim: Claim, group: _Group) -> LoadBalancerMatch:
        return group.match or self._lookup.by_evidence(claim, self._evidence)

    def _keep(self, claim: Claim, match: LoadBalancerMatch) -> MatchedClaim:
        several = len(claim.names) > 1
        places = {name: place for place, name in enumerate(claim.names)} if several else None
        matched = self._matched[id(claim)] = MatchedClaim(claim, match, places)
        return matched


def _by_hints(claims: Iterable[Claim]) -> Mapping[LoadBalancerHints, list[Claim]]:
    found: dict[LoadBalancerHints, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.hints, []).append(claim)
    return found
