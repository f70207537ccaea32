"""Which hostnames are written to the hosts file, and why the others are not: kept from one pass to the next.

A hostname is decided again if something changed on which it depends: a claim, its load balancer, the answer
of DNS, its lines in the hosts file, its place under the limits.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.desired import DnsQuestion, HostsLine, NameDecision, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef
from nodeagent.plan.hostname_contest import Contender, blocked_decision, settle
from nodeagent.plan.hostname_obstacles import HostnameLimits, NameObstacles, name_obstacles, obstacle
from nodeagent.plan.incremental import SortedRows, changed_keys
from nodeagent.plan.load_balancer_lookup import MatchedClaim
from nodeagent.plan.load_balancers import LoadBalancerPlan


@dataclass(slots=True, eq=False)
class _Hostname:
    """What is remembered of one hostname: the claims, the obstacles, and the decision."""

    claimed: tuple[MatchedClaim, ...] = ()
    obstacles: NameObstacles | None = None
    decisions: tuple[NameDecision, ...] = ()
    lines: tuple[HostsLine, ...] = ()


class HostnameDecisions:
    """Remembers the decisions on all hostnames.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._limits = HostnameLimits(config.limits)
        self._facts = Facts("")
        self._hostnames: dict[str, _Hostname] = {}
        self._names: SortedRows[str, NameDecision] = SortedRows()
        self._lines: dict[IPAddress, SortedRows[str, HostsLine]] = {}
        self._hosts: tuple[HostsLine, ...] = ()
        self._questions: dict[str, DnsQuestion] = {}
        self._load_balancers: tuple[LoadBalancerPlan, ...] = ()
        self._relays: Mapping[ObjectRef, tuple[IPAddress, ...]] = {}
        self._matter: Mapping[ObjectRef, frozenset[IPAddress]] = {}
        self._unions: dict[tuple[frozenset[IPAddress], frozenset[IPAddress]], frozenset[IPAddress]] = {}

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
            self._know(load_balancers)
        touched = self._touched_by(facts)
        self._facts = facts
        touched |= self._take_over(removed, added)
        contenders: dict[str, tuple[Contender, ...]] = {}
        for name in touched:
            contenders[name] = self._contenders(name)
        touched |= self._limits.settle()
        decided: dict[str, tuple[NameDecision, ...]] = {}
        lines: dict[IPAddress, dict[str, tuple[HostsLine, ...]]] = {}
        questions: dict[str, DnsQuestion] = {}
        for name in touched:
            known = self._hostnames[name]
            found = contenders[name] if name in contenders else self._contenders(name)
            decisions = settle([*map(self._limited, found)], facts, self._config) if found else ()
            if decisions != known.decisions:
                same = {decision: decision for decision in known.decisions}
                known.decisions = tuple(same.get(decision, decision) for decision in decisions)
                decided[name] = known.decisions
            self._write(name, known, lines)
            if (question := self._question(known.decisions)) is not None:
                questions[name] = question
            if not known.claimed:
                del self._hostnames[name]
        self._publish(touched, decided, lines, questions)

    @property
    def names(self) -> tuple[NameDecision, ...]:
        """One decision for each hostname, and one for each load balancer that claims it in vain."""
        return self._names.rows()

    @property
    def hosts(self) -> tuple[HostsLine, ...]:
        """The lines for all served hostnames, one for each family their load balancer is relayed in."""
        return self._hosts

    @property
    def questions(self) -> Mapping[str, DnsQuestion]:
        """The hostnames that only DNS can decide."""
        return self._questions

    def _know(self, load_balancers: tuple[LoadBalancerPlan, ...]) -> None:
        self._load_balancers = load_balancers
        self._relays = {plan.service.ref: plan.hosts_addresses for plan in load_balancers}
        self._matter = {
            plan.service.ref: frozenset((*plan.decision.addresses, *plan.decision.relay_addresses))
            for plan in load_balancers
        }
        self._unions = {}

    def _touched_by(self, facts: Facts) -> set[str]:
        """Return the hostnames whose decisions depend on facts that have changed."""
        before = self._facts
        if _rules(before) != _rules(facts):
            for known in self._hostnames.values():
                known.obstacles = None
            return set(self._hostnames)
        by_user = changed_keys(before.user_names, facts.user_names) & self._hostnames.keys()
        for name in by_user:
            self._hostnames[name].obstacles = None
        by_dns = changed_keys(before.dns, facts.dns)
        by_block = changed_keys(before.standing_names, facts.standing_names)
        by_block |= changed_keys(before.wanted_names, facts.wanted_names)
        return by_user | ((by_dns | by_block) & self._hostnames.keys())

    def _take_over(self, removed: Iterable[MatchedClaim], added: Iterable[MatchedClaim]) -> set[str]:
        touched: set[str] = set()
        for matched in removed:
            touched.update(matched.claim.names)
            for name in matched.claim.names:
                left = self._hostnames[name]
                left.claimed = tuple(each for each in left.claimed if each is not matched)
        for matched in added:
            touched.update(matched.claim.names)
            for name in matched.claim.names:
                known = self._hostnames.get(name)
                if known is None:
                    known = self._hostnames[name] = _Hostname()
                known.claimed = _with(known.claimed, matched)
        return touched

    def _contenders(self, name: str) -> tuple[Contender, ...]:
        """All that claim the hostname, the oldest first; one without obstacles takes its queue place."""
        known = self._hostnames[name]
        if known.obstacles is None:
            known.obstacles = name_obstacles(name, self._facts, self._config)
        opted_out = _opted_out(known.claimed)
        contenders: list[Contender] = []
        demands: dict[str, MatchedClaim] = {}
        for matched in known.claimed:
            claim, match = matched.claim, matched.match
            namespace = claim.ref.namespace
            answer = obstacle(known.obstacles, claim.excluded or opted_out.get(namespace, ""), match)
            if answer is None:
                contenders.append(Contender(name, claim, match))
                first = demands.setdefault(namespace, matched)
                if first is not matched and matched.place(name) < first.place(name):
                    demands[namespace] = matched
            else:
                blocked = blocked_decision(name, claim, match, answer)
                contenders.append(Contender(name, claim, match, blocked))
        self._limits.demand(name, tuple(demands.values()))
        return tuple(contenders)

    def _limited(self, contender: Contender) -> Contender:
        """Return the contender, blocked if the limits leave it out."""
        refusal = self._limits.refusal(contender.claim.ref.namespace, contender.name)
        if refusal is None or contender.blocked is not None:
            return contender
        name, claim, match = contender.name, contender.claim, contender.match
        return Contender(name, claim, match, blocked_decision(name, claim, match, refusal))

    def _write(
        self, name: str, known: _Hostname, changed: dict[IPAddress, dict[str, tuple[HostsLine, ...]]]
    ) -> None:
        """Note which lines of the hostname have changed."""
        addresses = [
            address
            for decision in known.decisions
            if decision.verdict is Verdict.SERVED and decision.load_balancer is not None
            for address in self._relays[decision.load_balancer]
        ]
        if addresses != [line.address for line in known.lines]:
            for line in known.lines:
                changed.setdefault(line.address, {})[name] = ()
            known.lines = tuple(HostsLine(address, name) for address in addresses)
            for line in known.lines:
                changed.setdefault(line.address, {})[name] = (line,)

    def _question(self, decisions: Iterable[NameDecision]) -> DnsQuestion | None:
        """Return the question to DNS for a hostname; None if there is none."""
        question: DnsQuestion | None = None
        for decision in decisions:
            if not decision.by_dns or decision.load_balancer is None:
                continue
            own = self._matter[decision.load_balancer]
            claimed_by = (question and question.claimed_by) or decision.claimed_by
            for more in (decision.among, question.matter if question else frozenset[IPAddress]()):
                if not more <= own:  # Thousands of hostnames share one set.
                    own = self._unions.setdefault((own, more), own | more)
            question = DnsQuestion(own, claimed_by.namespace, claimed_by)
        return question

    def _publish(
        self,
        touched: Iterable[str],
        decided: Mapping[str, tuple[NameDecision, ...]],
        lines: Mapping[IPAddress, Mapping[str, tuple[HostsLine, ...]]],
        questions: Mapping[str, DnsQuestion],
    ) -> None:
        """Make the values that are published; those without a change stay the same objects."""
        self._names.update(decided)
        for address, changed in lines.items():
            self._lines.setdefault(address, SortedRows()).update(changed)
        if lines:
            self._lines = {address: rows for address, rows in self._lines.items() if rows.rows()}
            rows = [self._lines[address].rows() for address in sorted(self._lines, key=sort_key)]
            self._hosts = rows[0] if len(rows) == 1 else tuple(chain.from_iterable(rows))
        other = [name for name in touched if self._questions.get(name) != questions.get(name)]
        if other:
            self._questions = dict(self._questions)
            for name in other:
                if name in questions:
                    self._questions[name] = questions[name]
                else:
                    del self._questions[name]


def _rules(facts: Facts) -> tuple[object, ...]:
    """Return what of the facts can forbid any hostname."""
    return facts.node_names, facts.api_server_names, facts.takes_wildcards


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


def _with(claimed: tuple[MatchedClaim, ...], matched: MatchedClaim) -> tuple[MatchedClaim, ...]:
    """Return the claims with one more, in their order."""
    at = bisect_right(claimed, matched.order(), key=MatchedClaim.order) if claimed else 0
    return (*claimed[:at], matched, *claimed[at:])
