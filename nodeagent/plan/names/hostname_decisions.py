"""Who gets each hostname, and the limits on their number.

A decision depends on the claims to the hostname, the answer of DNS, its lines in the hosts file and its place
under the limits: while these stay the same, so does the decision.

The oldest claims come first under the limits, in total and per namespace. A claim's age counts from when its
load balancer exists as well: one that is created later, at an address that a status already names, puts no
claim before those that have their places.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import ByName, IPAddress, is_wildcard
from nodeagent.model.decisions import Conclusion, DecisionStatus, NameDecision, bounded, refused, skipped
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import DnsQuestion, Facts
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan
from nodeagent.plan.memory import Changed, Memory, Quota, changed_keys
from nodeagent.plan.names.conditions import NOT_ALLOWED, allowed, not_served, obstacle, verify_by_dns
from nodeagent.plan.names.matching import Choice, ClaimsByName, MatchedClaim
from nodeagent.typed_values import intern


class _Contender(Struct, frozen=True, gc=False):
    """One object claims one hostname; `blocked` is the conclusion that needs no DNS, if there is one."""

    name: str
    matched: MatchedClaim
    blocked: Conclusion | None = None

    @property
    def load_balancer(self) -> LoadBalancerPlan | None:
        return self.matched.match.load_balancer

    @property
    def path(self) -> str:
        """The load balancer's path; empty without one."""
        return _path(self.load_balancer)

    def decided(self, conclusion: Conclusion, plan: LoadBalancerPlan | None) -> NameDecision:
        """Return the decision on the claim, for its own load balancer or another one."""
        ref = plan.service.ref if plan else None
        return NameDecision(self.name, self.matched.claim.ref, ref, conclusion)


class _Decided(Struct, frozen=True, gc=False):
    """What is decided on a hostname, then on each other load balancer for which it is claimed in vain.

    `question` is None if DNS has no say; `served` is the claim for which the hostname is served, if it is.
    """

    decisions: tuple[NameDecision, ...]
    lines: tuple[HostsLine, ...] = ()
    addresses: frozenset[IPAddress] = frozenset()
    question: DnsQuestion | None = None
    served: MatchedClaim | None = None


def decide(claimed: Sequence[_Contender], facts: Facts, config: Config) -> _Decided:
    """Decide which of the claims to one hostname (the oldest first) gets it: the oldest that DNS confirms.

    A hostname that is trusted without DNS (`hosts.allow`) stays with the load balancer that has it; else it
    goes to the oldest claim whose load balancer is known. So nothing that others create or edit moves it.
    """
    contenders = _one_per_load_balancer(claimed) if len(claimed) > 1 else claimed
    first, name = contenders[0], contenders[0].name
    trust = allowed(name, config.hosts)
    written = facts.standing_names.get(name) if trust else None
    asked = _asked(contenders, config, trusted=trust is not None)
    able = [contender for contender in contenders if not contender.blocked] if asked or written else ()
    ways = [(contender, plan) for contender in able for plan in _ways(contender, facts)]
    confirmed: Iterator[_Won] = (
        (contender, plan, verified)
        for contender, plan in (sorted(ways, key=lambda way: way[0].matched.claim.age) if asked else ())
        if (verified := verify_by_dns(name, plan, facts)).status is DecisionStatus.SERVED
    )
    stays: Iterator[_Won] = (
        (contender, plan, None)
        for contender, plan in ways
        if written and not written.isdisjoint(plan.hosts_addresses)
    )
    winner, plan, dns = next(chain(confirmed, stays), (first, first.load_balancer, None))
    conclusion = _with_how(dns, winner, plan) if dns else _decide_alone(winner, plan, trust, facts, config)
    lost = (
        contender.decided(_lost(contender, winner, plan, facts, config), contender.load_balancer)
        for contender in contenders
        if contender is not winner and contender.path != _path(plan)
    )
    served = conclusion.status is DecisionStatus.SERVED
    addresses = plan.hosts_addresses if plan and served else ()
    return _Decided(
        (winner.decided(conclusion, plan), *lost),
        tuple(HostsLine(address, name) for address in addresses),
        intern(frozenset(addresses)),
        _question(asked, winner) if asked else None,
        winner.matched if served else None,
    )


_Won = tuple[_Contender, LoadBalancerPlan | None, Conclusion | None]
"""Who gets a hostname, for which load balancer, and what DNS says if it decides."""


def _path(plan: LoadBalancerPlan | None) -> str:
    return plan.service.ref.path if plan else ""


def _one_per_load_balancer(claimed: Sequence[_Contender]) -> list[_Contender]:
    """Return the oldest claim for each load balancer, the oldest first; the oldest of all if none is known.

    A claim to which DNS can give another load balancer counts separately, and one that only DNS can give any
    comes last. A blocked claim gives way to any other one for its load balancer: so the later creation of a
    load balancer turns no choice of theirs into a veto.
    """
    oldest: dict[tuple[str, Choice | None], _Contender] = {}
    for contender in claimed:
        choice = contender.matched.match.choice
        if contender.path or choice is not None:
            earlier = oldest.get((contender.path, choice))
            if earlier is None or (earlier.blocked and not contender.blocked):
                oldest[contender.path, choice] = contender
    paths = {claim.path for claim in oldest.values() if not (claim.blocked or claim.matched.match.conclusion)}
    remaining = [claim for claim in oldest.values() if not claim.blocked or claim.path not in paths]
    remaining.sort(key=lambda claim: (claim.matched.match.conclusion is not None, claim.matched.claim.age))
    return remaining or [claimed[0]]


def _asked(contenders: Sequence[_Contender], config: Config, *, trusted: bool) -> tuple[_Contender, ...]:
    """Return those between which DNS decides: of a trusted hostname, only if there is a choice."""
    if config.hosts.verify != "dns" or is_wildcard(contenders[0].name):
        return ()
    unblocked = tuple(contender for contender in contenders if contender.blocked is None)
    choice = len(contenders) > 1 or any(contender.matched.match.choice for contender in unblocked)
    return unblocked if choice or not trusted else ()


def _question(asked: Sequence[_Contender], winner: _Contender) -> DnsQuestion:
    addresses: set[IPAddress] = set()
    for contender in asked:
        plan, choice = contender.load_balancer, contender.matched.match.choice
        addresses.update((*plan.decision.addresses, *plan.decision.relay_addresses) if plan else ())
        addresses.update(choice.by_address if choice else ())
    claimed_by = (winner if winner in asked else asked[0]).matched.claim.ref
    return DnsQuestion(intern(frozenset(addresses)), claimed_by.namespace, claimed_by)


def _ways(contender: _Contender, facts: Facts) -> tuple[LoadBalancerPlan, ...]:
    """Return the claim's load balancer, and those of its choice to which DNS, or an existing line, leads."""
    first, choice = contender.load_balancer, contender.matched.match.choice
    own = (first,) if first is not None and first.hosts_addresses else ()
    if choice is None:
        return own
    answer = facts.dns.get(contender.name)
    replies = (answer.latest, answer.last_conclusive) if answer else ()
    leads = {address for reply in replies if reply for address in reply.addresses}
    leads |= facts.standing_names.get(contender.name, frozenset())
    by_rank = {plan.rank: plan for address in leads if (plan := choice.by_address.get(address)) is not None}
    others = (plan for _, plan in sorted(by_rank.items()) if plan is not first and plan.hosts_addresses)
    return (*own, *others)


def _decide_alone(
    contender: _Contender,
    plan: LoadBalancerPlan | None,
    trust: Conclusion | None,
    facts: Facts,
    config: Config,
) -> Conclusion:
    """Return the decision on a claim if DNS confirms none: its own obstacle, or that it is trusted."""
    match = contender.matched.match
    if contender.blocked is not None:
        return contender.blocked
    if plan is None:
        return match.conclusion or skipped("UnknownLoadBalancer", "no load balancer is known to serve it")
    own = plan is contender.load_balancer
    conclusion = not_served(match.conclusion if own else None, plan) or plan.without_lines
    if conclusion is not None:
        return conclusion
    conclusion = trust or (NOT_ALLOWED if config.hosts.verify == "allow" else None)
    return _with_how(conclusion or verify_by_dns(contender.name, plan, facts), contender, plan)


def _lost(
    contender: _Contender, winner: _Contender, plan: LoadBalancerPlan | None, facts: Facts, config: Config
) -> Conclusion:
    """Return the decision on a claim to a hostname that another load balancer gets."""
    claim, winning, path = contender.matched.claim, winner.matched.claim, _path(plan)
    if claim.ref == winning.ref:
        reason = f"it claims the hostname for Service {path}: a hostname has only one load balancer"
        return skipped("OtherLoadBalancer", reason)
    if winning.age < claim.age:
        return refused("Conflict", f"{winning.ref} is older and claims the hostname for Service {path}")
    if allowed(contender.name, config.hosts):
        reason = f"{winning.ref} has the hostname already, or DNS says so, for Service {path}"
        return refused("Conflict", reason)
    return _decide_alone(contender, contender.load_balancer, None, facts, config)


def _with_how(conclusion: Conclusion, contender: _Contender, plan: LoadBalancerPlan | None) -> Conclusion:
    how = contender.matched.match.how
    if plan and plan is not contender.load_balancer:
        how = f"{plan.service.ref}, which has it or to which DNS leads"
    return intern(replace(conclusion, reason=bounded(f"{conclusion.reason}; {how}")) if how else conclusion)


class _Contest(Struct, frozen=True):
    """Who claims a hostname, the oldest first; and of each namespace, for which claim it wants a place."""

    contenders: tuple[_Contender, ...]
    places: Mapping[str, MatchedClaim]


class HostnamePlan(Struct, frozen=True):
    """All decisions, the lines of what is served (`standing`: by hostname), and what only DNS can decide."""

    names: ByName[NameDecision] = ByName()
    hosts: ByName[HostsLine] = ByName()
    standing: Mapping[str, frozenset[IPAddress]] = {}
    questions: Mapping[str, DnsQuestion] = {}


_Value = TypeVar("_Value")


class HostnamePlanner:
    """Decides on all hostnames, and remembers: a decision that is as before is the same object."""

    def __init__(self, config: Config) -> None:
        self._config = config
        limits = config.limits
        self._shares: Quota[str, MatchedClaim] = Quota(limits.hostnames_per_namespace, MatchedClaim.place)
        self._limit: Quota[str, MatchedClaim] = Quota(limits.hostnames, MatchedClaim.place)
        self._contests: Memory[str, _Contest] = Memory()
        self._decided: Memory[str, _Decided] = Memory()
        self._plan = HostnamePlan()
        self._collected_from: Mapping[str, _Decided] = {}

    def plan(self, claims: ClaimsByName, facts: Facts) -> HostnamePlan:
        """Return the decisions."""
        contests = self._contests.results(
            lambda name, claimed, _: self._contest(name, claimed, facts),
            claims,
            facts.user_names,
            # What can forbid any hostname.
            context=(facts.node_names, facts.api_server_names, facts.takes_wildcards),
        )
        decided = self._decided.results(
            lambda _, contest, left_out, *__: self._decide(contest, left_out or (), facts),
            contests,
            self._beyond_shares(contests),
            facts.dns,
            facts.standing_names,
        )
        return self._collected(self._within_limit(decided))

    def _contest(self, name: str, claims: Sequence[MatchedClaim], facts: Facts) -> _Contest:
        """Return all that claim the hostname; those without obstacles want a place."""
        contenders: list[_Contender] = []
        places: dict[str, MatchedClaim] = {}
        opted_out: dict[str, str] = {}
        for matched in sorted(claims, key=MatchedClaim.order) if len(claims) > 1 else claims:
            claim = matched.claim
            namespace = claim.ref.namespace
            # The oldest object of a namespace decides for its others whether it has opted out, for no others.
            own = claim.excluded if claim.excluded_in == namespace else None
            excluded = opted_out.setdefault(namespace, own or "")
            blocked = obstacle(name, claim.excluded or excluded, matched.match, facts, self._config)
            contenders.append(_Contender(name, matched, blocked))
            if blocked is None:
                best = places.setdefault(namespace, matched)
                if best is not matched and matched.place() < best.place():
                    places[namespace] = matched
        return _Contest(tuple(contenders), places)

    def _beyond_shares(self, contests: Mapping[str, _Contest]) -> Mapping[str, frozenset[str]]:
        if len(contests) <= self._shares.share:
            return {}
        return self._shares.left_out(
            (namespace, name, matched, 1)
            for name, contest in contests.items()
            for namespace, matched in contest.places.items()
        )

    def _decide(self, contest: _Contest, left_out: Iterable[str], facts: Facts) -> _Decided:
        """Return who gets the hostname; `left_out` are the namespaces in whose shares it has no place."""
        contenders = contest.contenders
        for namespace in left_out:
            reason = (
                f"namespace {namespace} has {self._shares.share} hostnames that come before this one "
                "(limits.hostnamesPerNamespace): DNAT alone serves it"
            )
            beyond = refused("TooManyHostnamesInNamespace", reason)
            contenders = tuple(
                replace(contender, blocked=contender.blocked or beyond)
                if contender.matched.claim.ref.namespace == namespace
                else contender
                for contender in contenders
            )
        return decide(contenders, facts, self._config)

    def _within_limit(self, decided: Mapping[str, _Decided]) -> Mapping[str, _Decided]:
        if len(decided) <= self._limit.share:
            return decided
        left_out = self._limit.left_out(
            ("", name, outcome.served, 1) for name, outcome in decided.items() if outcome.served
        )
        reason = f"{self._limit.share} hostnames come before it (limits.hostnames): DNAT alone serves it"
        conclusion = refused("TooManyHostnames", reason)
        limited: dict[str, _Decided] = {}
        for name in left_out:
            won, *lost = decided[name].decisions
            decisions = (dataclasses.replace(won, conclusion=conclusion), *lost)
            limited[name] = _Decided(decisions, question=decided[name].question)
        return {**decided, **limited} if limited else decided

    def _collected(self, decided: Mapping[str, _Decided]) -> HostnamePlan:
        changed = changed_keys(self._collected_from, decided)
        self._collected_from = decided
        if not changed:
            return self._plan
        before, new = self._plan, {name: decided.get(name, _UNCLAIMED) for name in sorted(changed)}
        self._plan = HostnamePlan(
            before.names.replaced({name: outcome.decisions for name, outcome in new.items()}),
            before.hosts.replaced({name: outcome.lines for name, outcome in new.items()}),
            _with(before.standing, {name: outcome.addresses or None for name, outcome in new.items()}),
            _with(before.questions, {name: outcome.question for name, outcome in new.items()}),
        )
        return self._plan


_UNCLAIMED = _Decided(())


def _with(before: Mapping[str, _Value], new: Mapping[str, _Value | None]) -> Mapping[str, _Value]:
    """Return the mapping with these values, None for none; the same object if nothing changes."""
    differing = {name: value for name, value in new.items() if before.get(name) != value}
    if not differing:
        return before
    set_ = {name: value for name, value in differing.items() if value is not None}
    return Changed(before, set_, differing.keys() - set_.keys())
