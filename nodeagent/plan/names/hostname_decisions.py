"""The decisions on all hostnames, and the limits on their number.

Each decision is made in hostname_contest.py. It depends on the claims to the hostname, the answer of DNS, its
lines in the hosts file and its place under the limits: while these stay the same, so does the decision.

The number of hostnames is limited, in total and per namespace. The oldest claims come first. A claim's age
counts from the time when its load balancer exists as well. So a load balancer that is created later, at an
address that a status already names, puts no claim before those that have their places.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import DnsQuestion, HostsLine, NameDecision, refused
from nodeagent.model.facts import Facts
from nodeagent.plan.memory import Memory, Quota
from nodeagent.plan.names.claims import ClaimsByName, MatchedClaim
from nodeagent.plan.names.hostname_contest import Contender, Decided, decide, obstacle


class _Contest(Struct, frozen=True):
    """Who claims a hostname, the oldest first; and of each namespace, for which claim it wants a place."""

    contenders: tuple[Contender, ...]
    places: Mapping[str, MatchedClaim]


class HostnamePlan(Struct, frozen=True):
    """The decisions on all hostnames, sorted by name.

    Attributes:
        names: one decision for each hostname, and one for each load balancer that claims it in vain.
        hosts: the lines for all served hostnames, one for each family their load balancer is relayed in.
        standing: their addresses, by hostname: `Facts.standing_names` of the next plan.
        questions: the hostnames that only DNS can decide.
    """

    names: tuple[NameDecision, ...] = ()
    hosts: tuple[HostsLine, ...] = ()
    standing: Mapping[str, frozenset[IPAddress]] = {}
    questions: Mapping[str, DnsQuestion] = {}


class HostnamePlanner:
    """Decides on all hostnames.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        limits = config.limits
        self._shares: Quota[str, MatchedClaim] = Quota(limits.hostnames_per_namespace, MatchedClaim.place)
        self._limit: Quota[str, MatchedClaim] = Quota(limits.hostnames, MatchedClaim.place)
        self._contests: Memory[str, _Contest] = Memory()
        self._decided: Memory[str, Decided] = Memory()
        self._plan = HostnamePlan()
        self._collected_from: Mapping[str, Decided] = {}

    def plan(self, claims: ClaimsByName, facts: Facts) -> HostnamePlan:
        """Return the decisions; those that are the same as before are the same objects."""
        contests = self._contests.results(
            lambda name, claim, more, _: self._contest(name, (claim, *(more or ())), facts),
            *claims,
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
        contenders: list[Contender] = []
        places: dict[str, MatchedClaim] = {}
        opted_out: dict[str, str] = {}
        for matched in sorted(claims, key=MatchedClaim.order) if len(claims) > 1 else claims:
            claim = matched.claim
            namespace = claim.ref.namespace
            # The oldest object of a namespace decides for its others whether it has opted out, for no others.
            own = claim.excluded if claim.excluded_in == namespace else None
            excluded = opted_out.setdefault(namespace, own or "")
            blocked = obstacle(name, claim.excluded or excluded, matched.match, facts, self._config)
            contenders.append(Contender(name, matched, blocked))
            if blocked is None:
                known = places.setdefault(namespace, matched)
                if known is not matched and matched.place() < known.place():
                    places[namespace] = matched
        return _Contest(tuple(contenders), places)

    def _beyond_shares(self, contests: Mapping[str, _Contest]) -> Mapping[str, frozenset[str]]:
        """Return the hostnames that find no place, each with the namespaces in whose shares."""
        if len(contests) <= self._shares.share:
            return {}
        return self._shares.left_out(
            (namespace, name, each, 1)
            for name, contest in contests.items()
            for namespace, each in contest.places.items()
        )

    def _decide(self, contest: _Contest, left_out: Iterable[str], facts: Facts) -> Decided:
        """Return who gets the hostname; `left_out` are the namespaces in whose shares it has no place."""
        most = self._config.limits.hostnames_per_namespace
        blocked = {
            namespace: refused(
                "TooManyHostnamesInNamespace",
                f"namespace {namespace} has {most} hostnames that come first (limits.hostnamesPerNamespace): "
                "DNAT alone serves this one",
            )
            for namespace in left_out
        }
        contenders = [
            replace(each, blocked=each.blocked or blocked.get(each.matched.claim.ref.namespace))
            if blocked
            else each
            for each in contest.contenders
        ]
        return decide(contenders, facts, self._config)

    def _within_limit(self, decided: Mapping[str, Decided]) -> Mapping[str, Decided]:
        """Return what is decided; nothing is served for the hostnames that the limit leaves out."""
        if len(decided) <= self._limit.share:
            return decided
        left_out = self._limit.left_out(
            ("", name, each.served, 1) for name, each in decided.items() if each.served
        )
        most = self._config.limits.hostnames
        reason = f"{most} hostnames come first (limits.hostnames): DNAT alone serves this one"
        conclusion = refused("TooManyHostnames", reason)
        limited: dict[str, Decided] = {}
        for name in left_out:
            won, *lost = decided[name].decisions
            decisions = (dataclasses.replace(won, conclusion=conclusion), *lost)
            limited[name] = Decided(decisions, question=decided[name].question)
        return {**decided, **limited} if limited else decided

    def _collected(self, decided: Mapping[str, Decided]) -> HostnamePlan:
        if decided is self._collected_from:
            return self._plan
        self._collected_from = decided
        before, in_order = self._plan, [decided[name] for name in sorted(decided)]
        names = tuple(chain.from_iterable(map(attrgetter("decisions"), in_order)))
        hosts = tuple(chain.from_iterable(map(attrgetter("lines"), in_order)))
        questions = {each.decisions[0].name: each.question for each in in_order if each.question}
        same = hosts == before.hosts
        self._plan = HostnamePlan(
            before.names if names == before.names else names,
            before.hosts if same else hosts,
            before.standing
            if same
            else {each.lines[0].name: each.addresses for each in in_order if each.lines},
            before.questions if questions == before.questions else questions,
        )
        return self._plan
