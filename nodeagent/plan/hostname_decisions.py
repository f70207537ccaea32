"""Which names are written to the hosts file, and why the others are not."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.desired import HostsLine, NameDecision, Verdict
from nodeagent.model.facts import Facts
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.dns_verification import NOT_ALLOWED, Verification, allowed, verify_by_dns
from nodeagent.plan.hostname_limits import beyond_limits
from nodeagent.plan.hostnames import canonical, covering, defect, is_wildcard
from nodeagent.plan.load_balancer_lookup import Choice, LoadBalancerLookup, LoadBalancerMatch
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.precedence import by_age

_LOCAL = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
# The short forms by which every client inside the cluster knows the API server.
_API_SERVER = ("kubernetes", "kubernetes.default", "svc")


@dataclass(frozen=True, slots=True)
class _Contender:
    """One object asks for one name.

    `blocked` is the decision that needs no DNS, if there is one. `heir`: a line that stands may be its own.
    """

    name: str
    by: Claim
    owner: LoadBalancerMatch
    blocked: NameDecision | None = None
    heir: bool = True


def decide_names(
    claims: Sequence[Claim], load_balancers: Sequence[LoadBalancerPlan], facts: Facts, config: Config
) -> tuple[NameDecision, ...]:
    """One decision for each name, and one more for each load balancer that claims it in vain."""
    owners = LoadBalancerLookup(claims, load_balancers, config.load_balancers.ingress_classes)
    owned = sorted(((claim, owners.of(claim)) for claim in claims), key=_precedence)
    opted_out = _opted_out(claim for claim, _ in owned)
    by_name: dict[str, list[_Contender]] = {}
    for claim in _within_limits(list(_contenders(owned, opted_out, facts, config)), config):
        by_name.setdefault(claim.name, []).append(claim)
    return tuple(decision for name in sorted(by_name) for decision in _settle(by_name[name], facts, config))


def _contenders(
    owned: Iterable[tuple[Claim, LoadBalancerMatch]],
    opted_out: Mapping[tuple[str, str], str],
    facts: Facts,
    config: Config,
) -> Iterator[_Contender]:
    for by, owner in owned:
        for name in dict.fromkeys(map(canonical, by.names)):
            claim = _Contender(name, by, owner)
            blocked = _blocked(claim, opted_out, facts, config)
            yield replace(claim, blocked=blocked) if blocked else claim


def _within_limits(claims: Sequence[_Contender], config: Config) -> Iterator[_Contender]:
    """Yields them in their order (the oldest first), those beyond the limits blocked.

    A claim counts from when its load balancer is there as well: so one that is created later, at an address
    that somebody's status names already, brings no claim before those that have their places.
    """
    limits = config.limits
    places = [claim for claim in claims if claim.blocked is None]
    refused: Mapping[tuple[str, str], tuple[str, str]] = {}
    if len(places) > min(limits.hostnames, limits.hostnames_per_namespace):
        places.sort(key=_age_with_load_balancer)
        refused = beyond_limits(((claim.by.ref.namespace, claim.name) for claim in places), limits)
    for claim in claims:
        refusal = refused.get((claim.by.ref.namespace, claim.name)) if claim.blocked is None else None
        if refusal is None:
            yield claim
        else:
            yield replace(claim, blocked=_decision(claim, Verdict.REFUSED, *refusal))


def _age_with_load_balancer(claim: _Contender) -> tuple[bool, float, str, str, str]:
    """The later of two ages: the claim's and its load balancer's.

    One that is a guess until DNS decides counts for nothing: what others create can turn it.
    """
    plan = claim.owner.load_balancer
    own = by_age(claim.by)
    return own if plan is None or claim.owner.choice is not None else max(own, by_age(plan.service))


def hosts_lines(
    names: Iterable[NameDecision], load_balancers: Iterable[LoadBalancerPlan]
) -> tuple[HostsLine, ...]:
    """The lines for all served names, a line for each family their load balancer is relayed in."""
    relays = {plan.service.ref: plan.hosts_addresses for plan in load_balancers}
    served: dict[IPAddress, list[str]] = {}
    for decision in names:
        if decision.verdict is Verdict.SERVED and decision.load_balancer is not None:
            for address in relays[decision.load_balancer]:
                served.setdefault(address, []).append(decision.name)
    return tuple(
        HostsLine(address, name)
        for address in sorted(served, key=sort_key)
        for name in sorted(served[address])
    )


def _precedence(owned: tuple[Claim, LoadBalancerMatch]) -> tuple[object, ...]:
    """The oldest first; of a Route that is attached to two Gateways, the load balancer that is relayed."""
    claim, owner = owned
    plan = owner.load_balancer
    if plan is None:
        return (*by_age(claim), True, 0)
    return (*by_age(claim), not plan.is_served, plan.rank)


def _opted_out(claims: Iterable[Claim]) -> Mapping[tuple[str, str], str]:
    """The names that a namespace has opted out of, each with the reason.

    Where several objects of a namespace have a name, its oldest decides. No other namespace is bound by that.
    """
    first: dict[tuple[str, str], str] = {}
    for claim in claims:  # the oldest first
        namespace = claim.ref.namespace
        reason = claim.excluded if claim.excluded and claim.excluded_in == namespace else ""
        for name in claim.names:
            first.setdefault((namespace, canonical(name)), reason)
    return {key: reason for key, reason in first.items() if reason}


def _settle(claims: Sequence[_Contender], facts: Facts, config: Config) -> list[NameDecision]:
    """Decides who has one name, of all that claim it (the oldest first).

    DNS decides: the first claim that it bears out has the name, however old the others are. What is trusted
    without DNS (`hosts.allow`), or can't be asked, is the oldest's whose load balancer is known. Names move
    from one load balancer to another so, while the old object still stands.
    """
    contenders = _with_heirs(_one_a_load_balancer(claims))
    borne_out = _borne_out(contenders, facts, config)
    winner, won = borne_out or (contenders[0], _decide_alone(contenders, facts, config))
    if len(contenders) == 1:
        return [won]
    path = won.load_balancer.path if won.load_balancer else ""
    losers = [claim for claim in contenders if claim is not winner and _load_balancer_path(claim) != path]
    return [won, *(_lost(claim, winner, won, facts, config) for claim in losers)]


def _one_a_load_balancer(claims: Sequence[_Contender]) -> list[_Contender]:
    """The oldest claim for each load balancer, the oldest first; the oldest of all where none is known.

    One that DNS can give another load balancer is not the same, and one that only DNS can give any comes
    last. One that is blocked stands back behind another one for its load balancer, whether DNS can give that
    another one or not: a load balancer that is created later makes no choice of theirs a veto.
    """
    found: dict[tuple[str, Choice | None], _Contender] = {}
    for claim in claims:
        if claim.owner.load_balancer is not None:
            key = (_load_balancer_path(claim), claim.owner.choice)
            standing = found.get(key)
            if standing is None or (standing.blocked and not claim.blocked):
                found[key] = claim
    led_to = {_load_balancer_path(each) for each in found.values() if not (each.blocked or each.owner.code)}
    left = [each for each in found.values() if not each.blocked or _load_balancer_path(each) not in led_to]
    return sorted(left, key=lambda claim: (bool(claim.owner.code), by_age(claim.by))) or [claims[0]]


def _with_heirs(contenders: Sequence[_Contender]) -> Sequence[_Contender]:
    """A line that stands is the oldest claim's that can have one, or another one's of its namespace."""
    first = next((claim for claim in contenders if claim.blocked is None), contenders[0])
    namespace = first.by.ref.namespace
    if all(claim.by.ref.namespace == namespace for claim in contenders):
        return contenders
    return [replace(claim, heir=claim.by.ref.namespace == namespace) for claim in contenders]


def _borne_out(
    contenders: Sequence[_Contender], facts: Facts, config: Config
) -> tuple[_Contender, NameDecision] | None:
    """The oldest claim that DNS bears out, with its decision; None if there is none."""
    if not _is_asked(contenders, config):
        return None
    for claim in contenders:
        for plan in _candidates(claim, facts) if claim.blocked is None else ():
            verification = verify_by_dns(claim.name, plan, facts, heir=claim.heir)
            if verification.verdict is Verdict.SERVED:
                return claim, _proven(claim, plan, verification)
    return None


def _is_asked(contenders: Sequence[_Contender], config: Config) -> bool:
    """Whether DNS is asked: for every name that needs proof, and of trusted ones for those with a choice."""
    name = contenders[0].name
    if config.hosts.verify != "dns" or is_wildcard(name):
        return False
    open_claims = [claim for claim in contenders if claim.blocked is None]
    contested = len(open_claims) > 0 and len(contenders) > 1
    return contested or any(claim.owner.choice for claim in open_claims) or not allowed(name, config.hosts)


def _candidates(claim: _Contender, facts: Facts) -> Iterator[LoadBalancerPlan]:
    """Yields the claim's load balancer, and of its choice those that DNS, or a standing line, leads to."""
    first = claim.owner.load_balancer
    if first is not None and first.hosts_addresses:
        yield first
    choice = claim.owner.choice
    if choice is None:
        return
    answer = facts.dns.get(claim.name)
    replies = (answer.latest, answer.told) if answer else ()
    leads = {address for reply in replies if reply for address in reply.addresses}
    leads |= facts.standing_names.get(claim.name, frozenset())
    found = {plan.rank: plan for address in leads if (plan := choice.by_address.get(address)) is not None}
    yield from (
        found[rank] for rank in sorted(found) if found[rank] is not first and found[rank].hosts_addresses
    )


def _decide_alone(contenders: Sequence[_Contender], facts: Facts, config: Config) -> NameDecision:
    """The decision on the oldest claim, where DNS bears out none: its own, or that it is trusted."""
    claim = contenders[0]
    if claim.blocked is not None:
        return claim.blocked
    plan = claim.owner.load_balancer
    if plan is None:
        raise AssertionError(f"a claim of no load balancer got as far as its proof: {claim.by.ref}")
    asked = _is_asked(contenders, config)
    unwritten = _unwritten(claim, plan)
    if unwritten is not None:
        choice = claim.owner.choice
        return replace(unwritten, by_dns=asked, among=choice.addresses if choice else frozenset())
    trusted = allowed(claim.name, config.hosts)
    if trusted is not None:
        return _proven(claim, plan, replace(trusted, by_dns=asked))
    if config.hosts.verify == "allow":
        return _proven(claim, plan, NOT_ALLOWED)
    return _proven(claim, plan, verify_by_dns(claim.name, plan, facts, heir=claim.heir))


def _unwritten(claim: _Contender, plan: LoadBalancerPlan) -> NameDecision | None:
    """Why no hosts line can lead to the load balancer, whoever claims the name; None if one can."""
    if claim.owner.code:
        return _decision(claim, Verdict.SKIPPED, claim.owner.code, claim.owner.reason)
    if not plan.is_served:
        reason = f"{plan.service.ref}: {plan.decision.reason}"
        return _decision(claim, Verdict.SKIPPED, "LoadBalancerNotServed", reason)
    return None if plan.hosts_addresses else _decision(claim, Verdict.SKIPPED, *plan.without_lines)


def _lost(
    claim: _Contender, winner: _Contender, won: NameDecision, facts: Facts, config: Config
) -> NameDecision:
    """The decision on a claim for a name that is another load balancer's.

    It rests on DNS as the winner's does: an answer that matters to either may turn the two.
    """
    service = won.load_balancer.path if won.load_balancer else ""
    if claim.by.ref == winner.by.ref:
        reason = f"it has the name for Service {service}: a name has one load balancer"
        return replace(_decision(claim, Verdict.SKIPPED, "OtherLoadBalancer", reason), by_dns=won.by_dns)
    if by_age(winner.by) < by_age(claim.by):
        reason = f"{winner.by.ref} is older and has the name for Service {service}"
        return replace(_decision(claim, Verdict.REFUSED, "Conflict", reason), by_dns=won.by_dns)
    if allowed(claim.name, config.hosts):
        reason = f"{winner.by.ref} has the name, as DNS says, for Service {service}"
        return replace(_decision(claim, Verdict.REFUSED, "Conflict", reason), by_dns=won.by_dns)
    return replace(_decide_alone([claim], facts, config), by_dns=won.by_dns)


_Answer = tuple[Verdict | None, str, str]
_Question = Callable[[_Contender, Facts, Config], _Answer]
_UNDECIDED: _Answer = (None, "", "")


def _blocked(
    claim: _Contender, opted_out: Mapping[tuple[str, str], str], facts: Facts, config: Config
) -> NameDecision | None:
    """The first question that has an answer decides; None where the claim is left to its verification."""
    if (decision := _first_answer((_by_form, _by_never_list), claim, facts, config)) is not None:
        return decision
    excluded = claim.by.excluded or opted_out.get((claim.by.ref.namespace, claim.name))
    if excluded:
        return _decision(claim, Verdict.SKIPPED, "ExcludedByAnnotation", excluded)
    questions = (_by_owner, _by_kind, _by_options, _by_relay, _by_user_line)
    return _first_answer(questions, claim, facts, config)


def _first_answer(
    questions: Iterable[_Question], claim: _Contender, facts: Facts, config: Config
) -> NameDecision | None:
    for ask in questions:
        verdict, code, reason = ask(claim, facts, config)
        if verdict is not None:
            return _decision(claim, verdict, code, reason)
    return None


def _by_form(claim: _Contender, _facts: Facts, _config: Config) -> _Answer:
    name = claim.name
    problem = defect(name.removeprefix("*.") if is_wildcard(name) else name)
    if problem:
        return Verdict.REFUSED, "BadName", f"never written: {problem}"
    return _UNDECIDED


def _by_never_list(claim: _Contender, facts: Facts, config: Config) -> _Answer:
    name = claim.name
    if covering(name, _LOCAL):
        whose = "belongs to the node's loopback"
    elif name in facts.node_names:
        whose = "is one of this node's own names"
    elif name in facts.api_server_names:
        whose = "is the API server's name"
    elif covering(name, (config.hosts.cluster_domain, *_API_SERVER)):
        whose = "belongs to the cluster's own DNS"
    else:
        return _UNDECIDED
    return Verdict.REFUSED, "NeverWritten", f"never written: it {whose}"


def _by_owner(claim: _Contender, _facts: Facts, _config: Config) -> _Answer:
    owner = claim.owner
    plan = owner.load_balancer
    if plan is None or (owner.code and owner.choice is None):
        return Verdict.SKIPPED, owner.code, owner.reason
    if not plan.is_served and owner.choice is None:
        return Verdict.SKIPPED, "LoadBalancerNotServed", f"{plan.service.ref}: {plan.decision.reason}"
    return _UNDECIDED


def _by_kind(claim: _Contender, facts: Facts, config: Config) -> _Answer:
    if not is_wildcard(claim.name):
        return _UNDECIDED
    if facts.takes_wildcards:
        if allowed(claim.name, config.hosts):
            return _UNDECIDED
        reason = (
            "not answered: that DNS has a wildcard record proves nothing of the names below it; hosts.allow "
            "has to cover it"
        )
        return Verdict.REFUSED, "WildcardNotAllowed", reason
    if config.dnat.backend == "none":
        return Verdict.REFUSED, "Wildcard", "not covered: no hosts file holds wildcards, and DNAT is off"
    return Verdict.SKIPPED, "Wildcard", "covered by DNAT alone: no hosts file holds wildcards"


def _by_options(claim: _Contender, _facts: Facts, config: Config) -> _Answer:
    if not config.hosts.enabled:
        if config.dnat.backend == "none":
            return Verdict.REFUSED, "HostsDisabled", "not covered: hosts.enabled is false, and DNAT is off"
        return Verdict.SKIPPED, "HostsDisabled", "hosts.enabled is false: DNAT alone serves it"
    suffix = covering(claim.name, config.hosts.exclude)
    if suffix:
        return Verdict.SKIPPED, "Excluded", f"covered by hosts.exclude: {suffix}"
    return _UNDECIDED


def _by_relay(claim: _Contender, _facts: Facts, _config: Config) -> _Answer:
    plan = claim.owner.load_balancer
    if plan is not None and not plan.hosts_addresses and claim.owner.choice is None:
        return Verdict.SKIPPED, *plan.without_lines
    return _UNDECIDED


def _by_user_line(claim: _Contender, facts: Facts, config: Config) -> _Answer:
    line = facts.user_names.get(claim.name)
    if line is None:
        return _UNDECIDED
    if line.by_hairpin_proxy:
        reason = (
            f"left to hairpin-proxy's line {line.line_number} of {config.hosts.file}: --adopt takes it over"
        )
        return Verdict.SKIPPED, "HairpinProxyLine", reason
    reason = f"left to line {line.line_number} of {config.hosts.file}, which sets it to {line.address}"
    return Verdict.SKIPPED, "UserLine", reason


def _decision(claim: _Contender, verdict: Verdict, code: str, reason: str) -> NameDecision:
    plan = claim.owner.load_balancer
    return NameDecision(claim.name, claim.by.ref, plan.service.ref if plan else None, verdict, code, reason)


def _proven(claim: _Contender, plan: LoadBalancerPlan, verification: Verification) -> NameDecision:
    how = claim.owner.how
    if plan is not claim.owner.load_balancer:
        how = f"{plan.service.ref} by what DNS says"
    choice = claim.owner.choice
    return NameDecision(
        claim.name,
        claim.by.ref,
        plan.service.ref,
        verification.verdict,
        verification.code,
        f"{verification.reason}; {how}" if how else verification.reason,
        verification.by_dns,
        verification.gist,
        choice.addresses if choice and verification.by_dns else frozenset(),
    )


def _load_balancer_path(claim: _Contender) -> str:
    return claim.owner.load_balancer.service.ref.path if claim.owner.load_balancer else ""
