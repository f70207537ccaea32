"""What is never written, whatever DNS says, and which of the objects that claim a hostname gets it. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, covering, defect, is_wildcard
from nodeagent.model.desired import (
    Conclusion,
    DecisionStatus,
    DnsQuestion,
    HostsLine,
    NameDecision,
    bounded,
    refused,
    skipped,
)
from nodeagent.model.facts import Facts
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan
from nodeagent.plan.names.claims import MatchedClaim
from nodeagent.plan.names.dns_verification import NOT_ALLOWED, allowed, verify_by_dns
from nodeagent.plan.names.load_balancer_lookup import Choice, LoadBalancerMatch
from nodeagent.typed_values import intern


class Contender(Struct, frozen=True):
    """One object claims one hostname, of a load balancer.

    `blocked` is the conclusion that needs no DNS, if there is one.
    """

    name: str
    matched: MatchedClaim
    blocked: Conclusion | None = None

    @property
    def load_balancer(self) -> LoadBalancerPlan | None:
        """The load balancer for which it claims the hostname."""
        return self.matched.match.load_balancer

    @property
    def path(self) -> str:
        """That load balancer's path; empty without one."""
        plan = self.load_balancer
        return plan.service.ref.path if plan else ""

    def decided(self, conclusion: Conclusion, plan: LoadBalancerPlan | None) -> NameDecision:
        """Return the decision on the claim, for its own load balancer or another one."""
        ref = plan.service.ref if plan else None
        return NameDecision(self.name, self.matched.claim.ref, ref, conclusion)


class Decided(Struct, frozen=True):
    """What is decided on a hostname.

    Attributes:
        decisions: the decision on the hostname, then one for each other load balancer for which it is claimed
            and that does not get it.
        lines: its lines of the hosts file, if it is served.
        addresses: those of its lines.
        question: what to ask DNS; None if it has no say.
        served: the claim for which it is served, if it is.
    """

    decisions: tuple[NameDecision, ...]
    lines: tuple[HostsLine, ...] = ()
    addresses: frozenset[IPAddress] = frozenset()
    question: DnsQuestion | None = None
    served: MatchedClaim | None = None


def decide(claimed: Sequence[Contender], facts: Facts, config: Config) -> Decided:
    """Decide which of the claims to one hostname (the oldest first) gets it.

    DNS decides: the oldest claim that it confirms gets the hostname, however old the others are. A hostname
    that is trusted without DNS (`hosts.allow`) stays with the load balancer that has it; else it goes to the
    oldest claim whose load balancer is known. So what is served is not moved by what others create or edit.
    """
    contenders = _one_per_load_balancer(claimed) if len(claimed) > 1 else claimed
    asked = _asked(contenders, config)
    winner, plan, conclusion = _confirmed(asked, facts) or _by_trust(contenders, facts, config)
    path = plan.service.ref.path if plan else ""
    losers = [one for one in contenders if one is not winner and one.path != path]
    lost = (one.decided(_lost(one, winner, path, facts, config), one.load_balancer) for one in losers)
    served = conclusion.status is DecisionStatus.SERVED
    addresses = plan.hosts_addresses if plan and served else ()
    return Decided(
        (winner.decided(conclusion, plan), *lost),
        tuple(HostsLine(address, winner.name) for address in addresses),
        intern(frozenset(addresses)),
        _question(asked, winner) if asked else None,
        winner.matched if served else None,
    )


def _question(asked: Sequence[Contender], winner: Contender) -> DnsQuestion:
    """Return what to ask DNS: whether it confirms one of these."""
    addresses: set[IPAddress] = set()
    for contender in asked:
        plan, choice = contender.load_balancer, contender.matched.match.choice
        addresses.update((*plan.decision.addresses, *plan.decision.relay_addresses) if plan else ())
        addresses.update(choice.by_address if choice else ())
    claimed_by = (winner if winner in asked else asked[0]).matched.claim.ref
    return DnsQuestion(intern(frozenset(addresses)), claimed_by.namespace, claimed_by)


def _one_per_load_balancer(claimed: Sequence[Contender]) -> list[Contender]:
    """Return the oldest claim for each load balancer, the oldest first.

    The oldest of all if none is known.

    A claim to which DNS can give another load balancer counts separately, and one that only DNS can give any
    comes last. A blocked claim gives way to another one for its load balancer, whether DNS can give that
    another one or not: so the later creation of a load balancer turns no choice of theirs into a veto.
    """
    found: dict[tuple[str, Choice | None], Contender] = {}
    for contender in claimed:
        if contender.load_balancer is not None or contender.matched.match.choice is not None:
            key = (contender.path, contender.matched.match.choice)
            earlier = found.get(key)
            if earlier is None or (earlier.blocked and not contender.blocked):
                found[key] = contender
    led_to = {each.path for each in found.values() if not (each.blocked or each.matched.match.conclusion)}
    left = [each for each in found.values() if not each.blocked or each.path not in led_to]
    left.sort(key=lambda each: (each.matched.match.conclusion is not None, each.matched.claim.age))
    return left or [claimed[0]]


def _asked(contenders: Sequence[Contender], config: Config) -> tuple[Contender, ...]:
    """Return those between which DNS decides: of a trusted hostname, only if there is a choice."""
    name = contenders[0].name
    if config.hosts.verify != "dns" or is_wildcard(name):
        return ()
    unblocked = tuple(contender for contender in contenders if contender.blocked is None)
    choice = len(contenders) > 1 or any(each.matched.match.choice for each in unblocked)
    return unblocked if choice or not allowed(name, config.hosts) else ()


def _confirmed(
    asked: Sequence[Contender], facts: Facts
) -> tuple[Contender, LoadBalancerPlan, Conclusion] | None:
    """Return the oldest claim that DNS confirms, with its load balancer; None if there is none."""
    for contender in sorted(asked, key=lambda each: each.matched.claim.age):
        for plan in _candidates(contender, facts):
            conclusion = verify_by_dns(contender.name, plan, facts)
            if conclusion.status is DecisionStatus.SERVED:
                return contender, plan, _told_how(conclusion, contender, plan)
    return None


def _candidates(contender: Contender, facts: Facts) -> Iterator[LoadBalancerPlan]:
    """Yield the claim's load balancer, and those of its choice to which DNS, or an existing line, leads."""
    first = contender.load_balancer
    if first is not None and first.hosts_addresses:
        yield first
    choice = contender.matched.match.choice
    if choice is None:
        return
    answer = facts.dns.get(contender.name)
    replies = (answer.latest, answer.last_conclusive) if answer else ()
    leads = {address for reply in replies if reply for address in reply.addresses}
    leads |= facts.standing_names.get(contender.name, frozenset())
    found = {plan.rank: plan for address in leads if (plan := choice.by_address.get(address)) is not None}
    yield from (
        found[rank] for rank in sorted(found) if found[rank] is not first and found[rank].hosts_addresses
    )


def _by_trust(
    contenders: Sequence[Contender], facts: Facts, config: Config
) -> tuple[Contender, LoadBalancerPlan | None, Conclusion]:
    """Return who gets the hostname if DNS confirms none, and why it is served or not."""
    first = contenders[0]
    if allowed(first.name, config.hosts):
        standing = facts.standing_names.get(first.name, frozenset())
        for contender in (each for each in contenders if each.blocked is None):
            for plan in _candidates(contender, facts):
                if not standing.isdisjoint(plan.hosts_addresses):
                    return contender, plan, _decide_alone(contender, plan, facts, config)
    return first, first.load_balancer, _decide_alone(first, first.load_balancer, facts, config)


def _decide_alone(
    contender: Contender, plan: LoadBalancerPlan | None, facts: Facts, config: Config
) -> Conclusion:
    """Return the decision on a claim if DNS confirms none: its own obstacle, or that it is trusted."""
    match = contender.matched.match
    if contender.blocked is not None:
        return contender.blocked
    if plan is None:
        return match.conclusion or skipped("UnknownLoadBalancer", "no load balancer is known to serve it")
    own = plan is contender.load_balancer
    conclusion = _not_served(match.conclusion if own else None, plan) or plan.without_lines
    if conclusion is not None:
        return conclusion
    conclusion = allowed(contender.name, config.hosts)
    if conclusion is None and config.hosts.verify == "allow":
        conclusion = NOT_ALLOWED
    if conclusion is None:
        conclusion = verify_by_dns(contender.name, plan, facts)
    return _told_how(conclusion, contender, plan)


def _lost(contender: Contender, winner: Contender, path: str, facts: Facts, config: Config) -> Conclusion:
    """Return the decision on a claim to a hostname that the load balancer of this path gets."""
    claim, winning = contender.matched.claim, winner.matched.claim
    if claim.ref == winning.ref:
        reason = f"it claims the hostname for Service {path}: a hostname has only one load balancer"
        return skipped("OtherLoadBalancer", reason)
    if winning.age < claim.age:
        reason = f"{winning.ref} is older and claims the hostname for Service {path}"
        return refused("Conflict", reason)
    if allowed(contender.name, config.hosts):
        reason = f"{winning.ref} has the hostname already, or DNS says so, for Service {path}"
        return refused("Conflict", reason)
    return _decide_alone(contender, contender.load_balancer, facts, config)


def _told_how(conclusion: Conclusion, contender: Contender, plan: LoadBalancerPlan) -> Conclusion:
    """Add how the load balancer was found."""
    how = contender.matched.match.how
    if plan is not contender.load_balancer:
        how = f"{plan.service.ref}, which has it or to which DNS leads"
    return intern(replace(conclusion, reason=bounded(f"{conclusion.reason}; {how}")) if how else conclusion)


_LOCAL = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
# The short forms by which every client inside the cluster knows the API server.
_API_SERVER = ("kubernetes", "kubernetes.default", "svc")


def obstacle(
    name: str, excluded: str, match: LoadBalancerMatch, facts: Facts, config: Config
) -> Conclusion | None:
    """Return the first obstacle of one claim; None if only its verification is left.

    Args:
        name: the hostname, canonical.
        excluded: why its owner or its namespace excludes it; empty if not.
        match: its load balancer.
        facts: the node's: its names, the API server's, the user's own lines.
        config: the configuration.
    """
    if problem := defect(name.removeprefix("*.")):
        return refused("BadName", f"never written: {problem}")
    if what := _other_purpose(name, facts, config):
        return refused("NeverWritten", f"never written: it {what}")
    if excluded:
        return skipped("ExcludedByAnnotation", excluded)
    plan = match.load_balancer
    if plan is None and match.choice is None:
        return match.conclusion
    own = plan if match.choice is None else None
    return (
        (_not_served(match.conclusion, own) if own else None)
        or _wildcard(name, match, facts, config)
        or _by_options(name, match, config)
        or (own.without_lines if own else None)
        or _user_line(name, facts, config)
    )


def _other_purpose(name: str, facts: Facts, config: Config) -> str:
    if covering(name, _LOCAL):
        return "belongs to the node's loopback"
    if name in facts.node_names:
        return "is one of this node's own hostnames"
    if name in facts.api_server_names:
        return "is the API server's hostname"
    in_cluster = covering(name, (config.hosts.cluster_domain, *_API_SERVER))
    return "belongs to the cluster's own DNS" if in_cluster else ""


def _not_served(conclusion: Conclusion | None, plan: LoadBalancerPlan) -> Conclusion | None:
    """Return why nothing serves a hostname of it; `conclusion`: why the hostname is not known to be its."""
    if conclusion is None and not plan.is_served:
        return skipped("LoadBalancerNotServed", f"{plan.service.ref}: {plan.decision.reason}")
    return conclusion


def _by_dnat(match: LoadBalancerMatch, config: Config) -> bool:
    """Whether DNAT serves it without a line: not if the load balancer is served by its hostname."""
    plan = match.load_balancer
    return config.dnat.backend != "none" and not (plan and plan.own_names)


def _wildcard(name: str, match: LoadBalancerMatch, facts: Facts, config: Config) -> Conclusion | None:
    if not is_wildcard(name):
        return None
    if facts.takes_wildcards:
        if allowed(name, config.hosts):
            return None
        reason = (
            "not answered: a wildcard record in DNS does not verify the hostnames below it; cover it by "
            "hosts.allow"
        )
        return refused("WildcardNotAllowed", reason)
    if not _by_dnat(match, config):
        return refused("Wildcard", "not covered: a hosts file can't hold wildcards, and no DNAT serves it")
    return skipped("Wildcard", "covered by DNAT alone: a hosts file can't hold wildcards")


def _by_options(name: str, match: LoadBalancerMatch, config: Config) -> Conclusion | None:
    if not config.hosts.enabled:
        if not _by_dnat(match, config):
            return refused("HostsDisabled", "not covered: hosts.enabled is false, and no DNAT serves it")
        return skipped("HostsDisabled", "hosts.enabled is false: DNAT alone serves it")
    suffix = covering(name, config.hosts.exclude)
    return skipped("Excluded", f"covered by hosts.exclude: {suffix}") if suffix else None


def _user_line(name: str, facts: Facts, config: Config) -> Conclusion | None:
    line = facts.user_names.get(name)
    if line is None:
        return None
    if line.by_hairpin_proxy:
        reason = (
            f"left to hairpin-proxy's line {line.line_number} of {config.hosts.file}: --adopt takes it over"
        )
        return skipped("HairpinProxyLine", reason)
    reason = f"left to line {line.line_number} of {config.hosts.file}, which sets it to {line.address}"
    return skipped("UserLine", reason)
