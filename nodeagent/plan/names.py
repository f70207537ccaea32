"""Which names are written to the hosts file, and why the others are not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.desired import HostsLine, NameDecision, Verdict
from nodeagent.model.facts import Facts
from nodeagent.plan.ages import by_age
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.hostnames import canonical, covering, defect, is_wildcard
from nodeagent.plan.load_balancers import LoadBalancerPlan
from nodeagent.plan.ownership import Owners, Ownership
from nodeagent.plan.proof import prove

_LOCAL = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
# The short forms by which every client inside the cluster knows the API server.
_API_SERVER = ("kubernetes", "kubernetes.default", "svc")


@dataclass(frozen=True, slots=True)
class _Claim:
    name: str
    by: Claim
    owner: Ownership


def decide_names(
    claims: Sequence[Claim], load_balancers: Sequence[LoadBalancerPlan], facts: Facts, config: Config
) -> tuple[NameDecision, ...]:
    """One decision for each name, and one more for each load balancer that claims it in vain."""
    owners = Owners(claims, load_balancers, config.load_balancers.ingress_classes)
    owned = [(claim, owners.of(claim.whereabouts)) for claim in claims]
    by_name: dict[str, list[_Claim]] = {}
    for claim, owner in sorted(owned, key=_precedence):
        for name in dict.fromkeys(map(canonical, claim.names)):
            by_name.setdefault(name, []).append(_Claim(name, claim, owner))
    return tuple(decision for name in sorted(by_name) for decision in _decide(by_name[name], facts, config))


def hosts_lines(
    names: Iterable[NameDecision], load_balancers: Iterable[LoadBalancerPlan]
) -> tuple[HostsLine, ...]:
    """The lines for all served names, a line for each family their load balancer is relayed in."""
    relays = {plan.service.ref: plan.names_at for plan in load_balancers}
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


def _precedence(owned: tuple[Claim, Ownership]) -> tuple[object, ...]:
    """The oldest first; of a Route that is attached to two Gateways, the load balancer that is relayed."""
    claim, owner = owned
    plan = owner.load_balancer
    if plan is None:
        return (*by_age(claim), True, "")
    return (*by_age(claim), plan.decision.verdict is not Verdict.SERVED, plan.service.ref.path)


def _decide(claims: Sequence[_Claim], facts: Facts, config: Config) -> list[NameDecision]:
    """The oldest object whose load balancer is known has the name; other load balancers get a refusal.

    Unless DNS settles it: of claims that rest on DNS alone, one that it bears out comes before an older one
    that it does not. Names move from one load balancer to another so, while the old object still stands.
    """
    contenders = _one_a_load_balancer(claims)
    winner, won = contenders[0], _decide_claim(contenders[0], facts, config)
    if len(contenders) == 1:
        return [won]
    told: dict[str, NameDecision] = {}
    if won.by_dns and won.verdict is not Verdict.SERVED:
        for claim in contenders[1:]:
            decision = _decide_claim(claim, facts, config)
            if decision.by_dns and decision.verdict is Verdict.SERVED:
                told = {_load_balancer_path(winner): won}
                winner, won = claim, decision
                break
    losers = [claim for claim in contenders if claim is not winner]
    return [won, *(told.get(_load_balancer_path(claim)) or _lost(claim, winner, won) for claim in losers)]


def _one_a_load_balancer(claims: Sequence[_Claim]) -> list[_Claim]:
    """The oldest claim for each load balancer, the oldest first; the oldest of all where none is known."""
    found: dict[str, _Claim] = {}
    for claim in claims:
        if claim.owner.load_balancer is not None:
            found.setdefault(_load_balancer_path(claim), claim)
    return list(found.values()) or [claims[0]]


def _lost(claim: _Claim, winner: _Claim, won: NameDecision) -> NameDecision:
    """The decision on a claim for a name that is another load balancer's.

    It rests on DNS as the winner's does: an answer that matters to either may turn the two.
    """
    service = _load_balancer_path(winner)
    if claim.by.ref == winner.by.ref:
        reason = f"it has the name for Service {service}: a name has one load balancer"
        return replace(_decision(claim, Verdict.SKIPPED, "OtherLoadBalancer", reason), by_dns=won.by_dns)
    older = by_age(winner.by) < by_age(claim.by)
    why = "is older and has the name for" if older else "has the name, as DNS says, for"
    reason = f"{winner.by.ref} {why} Service {service}"
    return replace(_decision(claim, Verdict.REFUSED, "Conflict", reason), by_dns=won.by_dns)


def _decide_claim(claim: _Claim, facts: Facts, config: Config) -> NameDecision:
    """The first question that has an answer decides."""
    for ask in (
        _by_form,
        _by_never_list,
        _by_annotation,
        _by_owner,
        _by_kind,
        _by_options,
        _by_relay,
        _by_user_line,
    ):
        verdict, code, reason = ask(claim, facts, config)
        if verdict is not None:
            return _decision(claim, verdict, code, reason)
    plan = claim.owner.load_balancer
    if plan is None:
        raise AssertionError(f"a claim of no load balancer got as far as its proof: {claim.by.ref}")
    proof = prove(claim.name, plan, facts, config.hosts)
    how = claim.owner.how
    return NameDecision(
        claim.name,
        claim.by.ref,
        plan.service.ref,
        proof.verdict,
        proof.code,
        f"{proof.reason}; {how}" if how else proof.reason,
        proof.by_dns,
        proof.gist,
    )


_Answer = tuple[Verdict | None, str, str]
_UNDECIDED: _Answer = (None, "", "")


def _by_form(claim: _Claim, _facts: Facts, _config: Config) -> _Answer:
    name = claim.name
    problem = defect(name.removeprefix("*.") if is_wildcard(name) else name)
    if problem:
        return Verdict.REFUSED, "BadName", f"never written: {problem}"
    return _UNDECIDED


def _by_never_list(claim: _Claim, facts: Facts, config: Config) -> _Answer:
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


def _by_annotation(claim: _Claim, _facts: Facts, _config: Config) -> _Answer:
    """The oldest object with the name decides, as ever: nobody can exclude another's name."""
    if claim.by.excluded:
        return Verdict.SKIPPED, "ExcludedByAnnotation", claim.by.excluded
    return _UNDECIDED


def _by_owner(claim: _Claim, _facts: Facts, _config: Config) -> _Answer:
    owner = claim.owner
    plan = owner.load_balancer
    if plan is None:
        return Verdict.SKIPPED, owner.code, owner.reason
    if plan.decision.verdict is not Verdict.SERVED:
        return Verdict.SKIPPED, "LoadBalancerNotServed", f"{plan.service.ref}: {plan.decision.reason}"
    return _UNDECIDED


def _by_kind(claim: _Claim, facts: Facts, config: Config) -> _Answer:
    if facts.takes_wildcards or not is_wildcard(claim.name):
        return _UNDECIDED
    if config.dnat.backend == "none":
        return Verdict.REFUSED, "Wildcard", "not covered: no hosts file holds wildcards, and DNAT is off"
    return Verdict.SKIPPED, "Wildcard", "covered by DNAT alone: no hosts file holds wildcards"


def _by_options(claim: _Claim, _facts: Facts, config: Config) -> _Answer:
    if not config.hosts.enabled:
        if config.dnat.backend == "none":
            return Verdict.REFUSED, "HostsDisabled", "not covered: hosts.enabled is false, and DNAT is off"
        return Verdict.SKIPPED, "HostsDisabled", "hosts.enabled is false: DNAT alone serves it"
    suffix = covering(claim.name, config.hosts.exclude)
    if suffix:
        return Verdict.SKIPPED, "Excluded", f"covered by hosts.exclude: {suffix}"
    return _UNDECIDED


def _by_relay(claim: _Claim, _facts: Facts, _config: Config) -> _Answer:
    plan = claim.owner.load_balancer
    if plan is not None and not plan.names_at:
        reason = f"not all ports of {plan.service.ref} are relayed: DNAT alone serves those that are"
        return Verdict.SKIPPED, "PartlyRelayed", reason
    return _UNDECIDED


def _by_user_line(claim: _Claim, facts: Facts, config: Config) -> _Answer:
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


def _decision(claim: _Claim, verdict: Verdict, code: str, reason: str) -> NameDecision:
    plan = claim.owner.load_balancer
    return NameDecision(claim.name, claim.by.ref, plan.service.ref if plan else None, verdict, code, reason)


def _load_balancer_path(claim: _Claim) -> str:
    return claim.owner.load_balancer.service.ref.path if claim.owner.load_balancer else ""
