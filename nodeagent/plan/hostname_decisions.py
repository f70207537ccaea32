"""The decisions on all hostnames, kept from one pass to the next, and the limits on their number.

Each decision is made in hostname_contest.py.

A hostname is decided again if something changed on which it depends: a claim, its load balancer, the answer
of DNS, its lines in the hosts file, its place under the limits.

The number of hostnames is limited, in total and per namespace. The oldest claims come first. A claim's age
counts from the time when its load balancer exists as well. So a load balancer that is created later, at an
address that a status already names, puts no claim before those that have their places.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.desired import DnsQuestion, HostsLine, NameDecision, Verdict, refused
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef
from nodeagent.plan.claim_matching import MatchedClaim
from nodeagent.plan.hostname_contest import Contender, Outcome, decide, obstacle
from nodeagent.plan.incremental import SortedRows, changed_keys
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.shares import Shares
from nodeagent.sharing import shared

_LineKey = tuple[int, int, str]


@dataclass(slots=True, eq=False)
class _Hostname:
    """What is remembered of one hostname: the claims, which namespaces they take a place of, the decision."""

    claimed: tuple[MatchedClaim, ...] = ()
    namespaces: tuple[str, ...] = ()
    decisions: tuple[NameDecision, ...] = ()
    lines: tuple[HostsLine, ...] = ()


class HostnameDecisions:
    """Remembers the decisions on all hostnames.

    Attributes:
        questions: the hostnames that only DNS can decide; another object after a change.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        limits = config.limits
        # What each namespace claims, and what is served in total.
        self._claimed: Shares[str, MatchedClaim] = Shares(limits.hostnames_per_namespace, _place)
        self._served: Shares[str, MatchedClaim] = Shares(limits.hostnames, _place)
        self._facts = Facts("")
        self._hostnames: dict[str, _Hostname] = {}
        self._names: SortedRows[str, NameDecision] = SortedRows()
        self._lines: SortedRows[_LineKey, HostsLine] = SortedRows()
        self.questions: dict[str, DnsQuestion] = {}
        self._load_balancers: tuple[LoadBalancerPlan, ...] = ()
        self._relays: Mapping[ObjectRef, tuple[IPAddress, ...]] = {}
        self._addresses: Mapping[ObjectRef, frozenset[IPAddress]] = {}

    def update(
        self,
        removed: Iterable[MatchedClaim],
        added: Iterable[MatchedClaim],
        load_balancers: tuple[LoadBalancerPlan, ...],
        facts: Facts,
    ) -> None:
        """Decide again what the changes touch.

        Args:
            removed: the claims that are gone, or have another load balancer.
            added: those that are new, or have this load balancer now.
            load_balancers: all of them.
            facts: the node's.
        """
        if load_balancers is not self._load_balancers:
            self._load_balancers = load_balancers
            self._relays = {plan.service.ref: plan.hosts_addresses for plan in load_balancers}
            self._addresses = {
                plan.service.ref: frozenset((*plan.decision.addresses, *plan.decision.relay_addresses))
                for plan in load_balancers
            }
        touched = self._touched_by(facts)
        self._facts = facts
        touched |= self._take_over_claims(removed, added)
        contenders = {name: self._contenders(name) for name in touched}
        moved = {name for _, name in self._claimed.settle()} - contenders.keys()
        contenders |= {name: self._contenders(name) for name in moved}
        outcomes = {name: self._decide(name, claimed) for name, claimed in contenders.items()}
        for _, name in self._served.settle():
            if name not in outcomes:
                outcomes[name] = self._decide(name, self._contenders(name))
        decided: dict[str, tuple[NameDecision, ...]] = {}
        lines: dict[_LineKey, tuple[HostsLine, ...]] = {}
        questions: dict[str, DnsQuestion] = {}
        for name, outcome in outcomes.items():
            known = self._hostnames[name]
            decisions = self._within_limit(name, outcome.decisions) if outcome else ()
            if decisions != known.decisions:
                same = {decision: decision for decision in known.decisions}
                known.decisions = tuple(same.get(decision, decision) for decision in decisions)
                decided[name] = known.decisions
            self._write(name, known, lines)
            if outcome and outcome.asked:
                questions[name] = self._question(outcome)
            if not known.claimed:
                del self._hostnames[name]
        self._names.update(decided)
        self._lines.update(lines)
        changed = {name: each for name, each in questions.items() if each != self.questions.get(name)}
        ended = [name for name in outcomes if name in self.questions and name not in questions]
        if changed or ended:
            asked = self.questions | changed
            for name in ended:
                del asked[name]
            self.questions = asked

    @property
    def names(self) -> tuple[NameDecision, ...]:
        """One decision for each hostname, and one for each load balancer that claims it in vain."""
        return self._names.rows()

    @property
    def hosts(self) -> tuple[HostsLine, ...]:
        """The lines for all served hostnames, one for each family their load balancer is relayed in."""
        return self._lines.rows()

    def _touched_by(self, facts: Facts) -> set[str]:
        """Return the hostnames whose decisions depend on facts that have changed."""
        before = self._facts
        # What can forbid any hostname.
        of_all = attrgetter("node_names", "api_server_names", "takes_wildcards")
        if of_all(before) != of_all(facts):
            return set(self._hostnames)
        touched = changed_keys(before.user_names, facts.user_names)
        touched |= changed_keys(before.dns, facts.dns)
        touched |= changed_keys(before.standing_names, facts.standing_names)
        touched |= changed_keys(before.wanted_names, facts.wanted_names)
        return touched & self._hostnames.keys()

    def _take_over_claims(self, removed: Iterable[MatchedClaim], added: Iterable[MatchedClaim]) -> set[str]:
        """Take over the claims, each hostname's at once: thousands of objects can claim the same one."""
        gone, new = _by_name(removed), _by_name(added)
        for name, claims in gone.items():
            left = self._hostnames[name]
            ended = set(map(id, claims))
            left.claimed = tuple(each for each in left.claimed if id(each) not in ended)
        for name, claims in new.items():
            known = self._hostnames.get(name)
            if known is None:
                known = self._hostnames[name] = _Hostname()
            known.claimed = tuple(sorted((*known.claimed, *claims), key=MatchedClaim.order))
        return gone.keys() | new.keys()

    def _contenders(self, name: str) -> tuple[Contender, ...]:
        """Return all that claim the hostname, the oldest first; those without obstacles want a place."""
        known = self._hostnames[name]
        opted_out = _opted_out(known.claimed)
        contenders: list[Contender] = []
        places: dict[str, MatchedClaim] = {}
        for matched in known.claimed:
            claim = matched.claim
            namespace = claim.ref.namespace
            excluded = claim.excluded or opted_out.get(namespace, "")
            blocked = obstacle(name, excluded, matched.match, self._facts, self._config)
            contenders.append(Contender(name, matched, blocked))
            if blocked is None:
                first = places.setdefault(namespace, matched)
                if first is not matched and matched.place(name) < first.place(name):
                    places[namespace] = matched
        for namespace in known.namespaces:
            if namespace not in places:
                self._claimed.remove(namespace, name)
        for namespace, matched in places.items():
            self._claimed.put(namespace, name, matched)
        known.namespaces = tuple(places)
        return tuple(contenders)

    def _decide(self, name: str, contenders: Sequence[Contender]) -> Outcome | None:
        """Return who gets the hostname; None if there are no claims. If it is served, it wants a place."""
        outcome = None
        if contenders:
            outcome = decide([*map(self._within_share, contenders)], self._facts, self._config)
        if outcome and outcome.decisions[0].verdict is Verdict.SERVED:
            self._served.put("", name, outcome.winner.matched)
        else:
            self._served.remove("", name)
        return outcome

    def _within_share(self, contender: Contender) -> Contender:
        """Return the contender, blocked if its namespace's share leaves it out."""
        namespace = contender.matched.claim.ref.namespace
        if contender.blocked or contender.name not in self._claimed.left_out(namespace):
            return contender
        most = self._config.limits.hostnames_per_namespace
        reason = (
            f"namespace {namespace} has {most} hostnames that come first (limits.hostnamesPerNamespace): "
            "DNAT alone serves this one"
        )
        return replace(contender, blocked=refused("TooManyHostnamesInNamespace", reason))

    def _within_limit(self, name: str, decisions: tuple[NameDecision, ...]) -> tuple[NameDecision, ...]:
        """Return the decisions; none is served if the limit leaves the hostname out."""
        if name not in self._served.left_out(""):
            return decisions
        most = self._config.limits.hostnames
        reason = f"{most} hostnames come first (limits.hostnames): DNAT alone serves this one"
        won = dataclasses.replace(decisions[0], ruling=refused("TooManyHostnames", reason))
        return (won, *decisions[1:])

    def _write(self, name: str, known: _Hostname, changed: dict[_LineKey, tuple[HostsLine, ...]]) -> None:
        """Note which lines of the hostname have changed."""
        addresses = [
            address
            for decision in known.decisions
            if decision.verdict is Verdict.SERVED and decision.load_balancer is not None
            for address in self._relays[decision.load_balancer]
        ]
        if addresses != [line.address for line in known.lines]:
            changed.update((_line_key(line), ()) for line in known.lines)
            known.lines = tuple(HostsLine(address, name) for address in addresses)
            changed.update((_line_key(line), (line,)) for line in known.lines)

    def _question(self, outcome: Outcome) -> DnsQuestion:
        """Return what to ask DNS: whether it confirms one of the claims."""
        addresses: set[IPAddress] = set()
        for contender in outcome.asked:
            plan, choice = contender.load_balancer, contender.matched.match.choice
            addresses |= self._addresses[plan.service.ref] if plan else set()
            addresses |= choice.by_address.keys() if choice else set()
        asking = outcome.winner if outcome.winner in outcome.asked else outcome.asked[0]
        claimed_by = asking.matched.claim.ref
        return DnsQuestion(shared(frozenset(addresses)), claimed_by.namespace, claimed_by)


def _line_key(line: HostsLine) -> _LineKey:
    return (*sort_key(line.address), line.name)


def _place(name: str, matched: MatchedClaim) -> tuple[Any, ...]:
    return matched.place(name)


def _opted_out(claimed: Sequence[MatchedClaim]) -> Mapping[str, str]:
    """Return the namespaces that have opted out of a hostname, each with the reason.

    If several objects of a namespace claim it, the oldest decides. That binds no other namespace.
    """
    first: dict[str, str] = {}
    for matched in claimed:  # the oldest first
        claim = matched.claim
        namespace = claim.ref.namespace
        if namespace not in first:
            binds = claim.excluded is not None and claim.excluded_in == namespace
            first[namespace] = claim.excluded or "" if binds else ""
    return first


def _by_name(claims: Iterable[MatchedClaim]) -> Mapping[str, list[MatchedClaim]]:
    found: dict[str, list[MatchedClaim]] = {}
    for matched in claims:
        for name in matched.claim.names:
            found.setdefault(name, []).append(matched)
    return found
