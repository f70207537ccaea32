"""Which of the objects that claim a hostname gets it. Pure: only what concerns this hostname counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import NameDecision, Verdict
from nodeagent.model.facts import Facts
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.dns_verification import NOT_ALLOWED, Verification, allowed, verify_by_dns
from nodeagent.plan.hostnames import is_wildcard
from nodeagent.plan.load_balancer_lookup import Choice, LoadBalancerMatch
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.sharing import shared

_NONE: frozenset[IPAddress] = frozenset()


@dataclass(frozen=True, slots=True)
class Contender:
    """One object claims one hostname, of a load balancer.

    `blocked` is the decision that needs no DNS, if there is one. `heir`: an existing line may be its own.
    """

    name: str
    claim: Claim
    match: LoadBalancerMatch
    blocked: NameDecision | None = None
    heir: bool = True


def blocked_decision(
    name: str, claim: Claim, match: LoadBalancerMatch, answer: tuple[Verdict, str, str]
) -> NameDecision:
    """Return the decision that needs no DNS: verdict, code and reason."""
    plan = match.load_balancer
    return NameDecision(name, claim.ref, plan.service.ref if plan else None, *answer)


def settle(claimed: Sequence[Contender], facts: Facts, config: Config) -> tuple[NameDecision, ...]:
    """Decide which of the claims to one hostname (the oldest first) gets it.

    DNS decides: the oldest claim that it confirms gets the hostname, however old the others are. A
    hostname that is trusted without DNS (`hosts.allow`), or can't be looked up, belongs to the oldest claim
    whose load balancer is known. So hostnames can move from one load balancer to another while the old object
    still exists.

    Returns:
        The decision on the hostname, then one for each other load balancer for which it is claimed and that
        does not get it.
    """
    contenders = _with_heirs(_one_a_load_balancer(claimed)) if len(claimed) > 1 else claimed
    borne_out = _borne_out(contenders, facts, config)
    winner, won = borne_out or (contenders[0], _decide_alone(contenders, facts, config))
    if len(contenders) == 1:
        return (won,)
    path = won.load_balancer.path if won.load_balancer else ""
    losers = [
        contender
        for contender in contenders
        if contender is not winner and _load_balancer_path(contender) != path
    ]
    return (won, *(_lost(contender, winner, won, facts, config) for contender in losers))


def _one_a_load_balancer(claimed: Sequence[Contender]) -> list[Contender]:
    """Return the oldest claim for each load balancer, the oldest first.

    The oldest of all if none is known.

    A claim to which DNS can give another load balancer counts separately, and one that only DNS can give any
    comes last. A blocked claim gives way to another one for its load balancer, whether DNS can give that
    another one or not: so the later creation of a load balancer turns no choice of theirs into a veto.
    """
    found: dict[tuple[str, Choice | None], Contender] = {}
    for contender in claimed:
        if contender.match.load_balancer is not None:
            key = (_load_balancer_path(contender), contender.match.choice)
            standing = found.get(key)
            if standing is None or (standing.blocked and not contender.blocked):
                found[key] = contender
    led_to = {_load_balancer_path(each) for each in found.values() if not (each.blocked or each.match.code)}
    left = [each for each in found.values() if not each.blocked or _load_balancer_path(each) not in led_to]
    return sorted(left, key=lambda contender: (bool(contender.match.code), contender.claim.age)) or [
        claimed[0]
    ]


def _with_heirs(contenders: Sequence[Contender]) -> Sequence[Contender]:
    """Give an existing line to the oldest claim that can have one, or to another one of its namespace."""
    first = next((contender for contender in contenders if contender.blocked is None), contenders[0])
    namespace = first.claim.ref.namespace
    if all(contender.claim.ref.namespace == namespace for contender in contenders):
        return contenders
    return [replace(contender, heir=contender.claim.ref.namespace == namespace) for contender in contenders]


def _borne_out(
    contenders: Sequence[Contender], facts: Facts, config: Config
) -> tuple[Contender, NameDecision] | None:
    """Return the oldest claim that DNS confirms, with its decision; None if there is none."""
    if not _is_asked(contenders, config):
        return None
    for contender in sorted(contenders, key=lambda each: each.claim.age):
        for plan in _candidates(contender, facts) if contender.blocked is None else ():
            verification = verify_by_dns(contender.name, plan, facts, heir=contender.heir)
            if verification.verdict is Verdict.SERVED:
                return contender, _proven(contender, plan, verification)
    return None


def _is_asked(contenders: Sequence[Contender], config: Config) -> bool:
    """Whether DNS is queried: for each hostname that needs verification, and trusted ones with a choice."""
    name = contenders[0].name
    if config.hosts.verify != "dns" or is_wildcard(name):
        return False
    open_claims = [contender for contender in contenders if contender.blocked is None]
    contested = len(open_claims) > 0 and len(contenders) > 1
    return (
        contested
        or any(contender.match.choice for contender in open_claims)
        or not allowed(name, config.hosts)
    )


def _candidates(contender: Contender, facts: Facts) -> Iterator[LoadBalancerPlan]:
    """Yield the claim's load balancer, and those of its choice to which DNS, or an existing line, leads."""
    first = contender.match.load_balancer
    if first is not None and first.hosts_addresses:
        yield first
    choice = contender.match.choice
    if choice is None:
        return
    answer = facts.dns.get(contender.name)
    replies = (answer.latest, answer.told) if answer else ()
    leads = {address for reply in replies if reply for address in reply.addresses}
    leads |= facts.addresses_of(contender.name)
    found = {plan.rank: plan for address in leads if (plan := choice.by_address.get(address)) is not None}
    yield from (
        found[rank] for rank in sorted(found) if found[rank] is not first and found[rank].hosts_addresses
    )


def _decide_alone(contenders: Sequence[Contender], facts: Facts, config: Config) -> NameDecision:
    """Return the decision on the oldest claim if DNS confirms none: its own, or that it is trusted."""
    contender = contenders[0]
    if contender.blocked is not None:
        return contender.blocked
    plan = contender.match.load_balancer
    if plan is None:
        raise AssertionError(
            f"a claim of no load balancer got as far as its verification: {contender.claim.ref}"
        )
    asked = _is_asked(contenders, config)
    unwritten = _unwritten(contender, plan)
    if unwritten is not None:
        choice = contender.match.choice
        return replace(unwritten, by_dns=asked, among=choice.addresses if choice else _NONE)
    trusted = allowed(contender.name, config.hosts)
    if trusted is not None:
        return _proven(contender, plan, replace(trusted, by_dns=asked))
    if config.hosts.verify == "allow":
        return _proven(contender, plan, NOT_ALLOWED)
    return _proven(contender, plan, verify_by_dns(contender.name, plan, facts, heir=contender.heir))


def _unwritten(contender: Contender, plan: LoadBalancerPlan) -> NameDecision | None:
    """Why no hosts line can lead to the load balancer, whatever claims the hostname; None if one can."""
    if contender.match.code:
        return _decision(contender, Verdict.SKIPPED, contender.match.code, contender.match.reason)
    if not plan.is_served:
        reason = f"{plan.service.ref}: {plan.decision.reason}"
        return _decision(contender, Verdict.SKIPPED, "LoadBalancerNotServed", reason)
    return None if plan.hosts_addresses else _decision(contender, Verdict.SKIPPED, *plan.without_lines)


def _lost(
    contender: Contender, winner: Contender, won: NameDecision, facts: Facts, config: Config
) -> NameDecision:
    """Return the decision on a claim to a hostname that another load balancer gets.

    It depends on DNS as the winner's does: an answer that matters to either may reverse the two.
    """
    service = won.load_balancer.path if won.load_balancer else ""
    if contender.claim.ref == winner.claim.ref:
        reason = f"it claims the hostname for Service {service}: a hostname has only one load balancer"
        return replace(_decision(contender, Verdict.SKIPPED, "OtherLoadBalancer", reason), by_dns=won.by_dns)
    if winner.claim.age < contender.claim.age:
        reason = f"{winner.claim.ref} is older and claims the hostname for Service {service}"
        return replace(_decision(contender, Verdict.REFUSED, "Conflict", reason), by_dns=won.by_dns)
    if allowed(contender.name, config.hosts):
        reason = f"{winner.claim.ref} has the hostname, according to DNS, for Service {service}"
        return replace(_decision(contender, Verdict.REFUSED, "Conflict", reason), by_dns=won.by_dns)
    return replace(_decide_alone([contender], facts, config), by_dns=won.by_dns)


def _decision(contender: Contender, verdict: Verdict, code: str, reason: str) -> NameDecision:
    return blocked_decision(contender.name, contender.claim, contender.match, (verdict, code, reason))


def _proven(contender: Contender, plan: LoadBalancerPlan, verification: Verification) -> NameDecision:
    how = contender.match.how
    if plan is not contender.match.load_balancer:
        how = f"{plan.service.ref}, according to DNS"
    choice = contender.match.choice
    return NameDecision(
        contender.name,
        contender.claim.ref,
        plan.service.ref,
        verification.verdict,
        verification.code,
        shared(f"{verification.reason}; {how}" if how else verification.reason),
        verification.by_dns,
        verification.gist,
        choice.addresses if choice and verification.by_dns else _NONE,
    )


def _load_balancer_path(contender: Contender) -> str:
    return contender.match.load_balancer.service.ref.path if contender.match.load_balancer else ""
