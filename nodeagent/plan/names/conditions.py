"""What one claim to a hostname depends on: what is never written, hosts.allow, and what DNS says. Pure.

Anyone who can create an Ingress can claim any hostname. Anyone whose hostname also resolves to an address of
the load balancer that claims it has the hostname anyway: writing it takes nothing from anyone. This does not
hold for a load balancer at addresses of nodes (k3s' ServiceLB): hostnames of nodes resolve to them, too.

Fail static: while DNS is not available, its last answer counts. If nothing is remembered (after a restart),
the managed block is the memory: a hostname stays if its line has the relay address of the load balancer that
claims it now. A line that a running agent wanted in its last pass counts as existing, too, if it is gone.
"""

from collections.abc import Iterable
from dataclasses import replace

from nodeagent.config.options import Config, HostsOptions
from nodeagent.model.addresses import IPAddress, covering, defect, is_wildcard
from nodeagent.model.decisions import Conclusion, DecisionStatus, refused, served, skipped
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan
from nodeagent.plan.names.matching import LoadBalancerMatch

_LOCAL = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback", "localhost4", "localhost6")
# Google's and AWS's; addresses that clouds use for it are never redirected either (node_tables.toml).
_METADATA = ("metadata.google.internal", "instance-data.ec2.internal")
# The short forms by which every client inside the cluster knows the API server.
_API_SERVER = ("kubernetes", "kubernetes.default", "svc")


def obstacle(
    name: str, excluded: str, match: LoadBalancerMatch, facts: Facts, config: Config
) -> Conclusion | None:
    """Return the first obstacle of a claim, `excluded` or not; None if only verification is left."""
    if problem := defect(name.removeprefix("*.")):
        return refused("BadName", f"never written: {problem}")
    if purpose := _other_purpose(name, facts, config):
        return refused("NeverWritten", f"never written: it {purpose}")
    if excluded:
        return skipped("ExcludedByAnnotation", excluded)
    plan = match.load_balancer
    if plan is None and match.choice is None:
        return match.conclusion
    own = plan if match.choice is None else None
    return (
        (not_served(match.conclusion, own) if own else None)
        or _wildcard(name, match, facts, config)
        or _by_options(name, match, config)
        or (own.without_lines if own else None)
        or _user_line(name, facts, config)
    )


def _other_purpose(name: str, facts: Facts, config: Config) -> str:
    if suffix := covering(name, (*_LOCAL, *_METADATA)):
        return "belongs to the node's loopback" if suffix in _LOCAL else "is the cloud's metadata server"
    if name in facts.node_names:
        return "is one of this node's own hostnames"
    if name in facts.api_server_names:
        return "is the API server's hostname"
    in_cluster = covering(name, (config.hosts.cluster_domain, *_API_SERVER))
    return "belongs to the cluster's own DNS" if in_cluster else ""


def not_served(conclusion: Conclusion | None, plan: LoadBalancerPlan) -> Conclusion | None:
    """Return why nothing serves a hostname of it; `conclusion`: why the hostname is not known to be its."""
    if conclusion is None and not plan.is_served:
        return skipped("LoadBalancerNotServed", f"{plan.service.ref}: {plan.decision.reason}")
    return conclusion


def _by_dnat(match: LoadBalancerMatch, config: Config) -> bool:
    """Whether DNAT serves it without a line: not if the load balancer is served by its hostname."""
    plan = match.load_balancer
    return config.dnat.backend != "none" and not (plan and plan.own_names)


def _wildcard(name: str, match: LoadBalancerMatch, facts: Facts, config: Config) -> Conclusion | None:
    if not is_wildcard(name) or (facts.takes_wildcards and allowed(name, config.hosts)):
        return None
    if facts.takes_wildcards:
        return refused(
            "WildcardNotAllowed",
            "not answered: a wildcard record in DNS does not verify the hostnames below it; add it to "
            "hosts.allow",
        )
    if not _by_dnat(match, config):
        return refused("Wildcard", "not served: a hosts file can't hold wildcards, nor does DNAT serve it")
    return skipped("Wildcard", "DNAT alone serves it: a hosts file can't hold wildcards")


def _by_options(name: str, match: LoadBalancerMatch, config: Config) -> Conclusion | None:
    if not config.hosts.enabled:
        if not _by_dnat(match, config):
            return refused("HostsDisabled", "not served: hosts.enabled is false, and no DNAT serves it")
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


_MOST_SHOWN = 4

_FAILURES = {
    DnsOutcome.SERVFAIL: "DnsServfail",
    DnsOutcome.REFUSED: "DnsRefused",
    DnsOutcome.TIMEOUT: "DnsTimeout",
    DnsOutcome.UNREACHABLE: "DnsUnreachable",
    DnsOutcome.NO_SERVER: "NoDnsServer",
}


NOT_ALLOWED = refused("NotVerified", "not verified: no suffix in hosts.allow covers it")
"""The decision on a hostname that `hosts.allow` does not cover if `hosts.verify` is `allow`."""


def allowed(name: str, options: HostsOptions) -> Conclusion | None:
    """Return the decision on a hostname that the administrator trusts without DNS; None for any other."""
    suffix = covering(name, options.allow)
    return served("Allowed", f"covered by hosts.allow: {suffix}") if suffix else None


def verify_by_dns(name: str, load_balancer: LoadBalancerPlan, facts: Facts) -> Conclusion:
    """Decide on `name` (canonical, no wildcard), which the load balancer claims, by what DNS says."""
    standing = facts.standing_names.get(name, frozenset())
    written = not standing.isdisjoint(load_balancer.hosts_addresses)
    answer = facts.dns.get(name)
    if answer is None or load_balancer.unresolved == "":
        return _KEPT_UNASKED if written else _NOT_ASKED_YET
    decided = _told(answer.latest, load_balancer)
    return decided or _from_memory(answer, load_balancer, written=written)


_KEPT_UNASKED = served("KeptUnasked", "kept as written until DNS is queried")
_NOT_ASKED_YET = skipped("NotAskedYet", "not verified until DNS is queried")


def _told(reply: DnsReply, load_balancer: LoadBalancerPlan) -> Conclusion | None:
    """Return what a reply decides; None if it says nothing."""
    if matched := _matched(reply, load_balancer):
        if not load_balancer.at_nodes:
            return served("Verified", f"verified: DNS answers {matched}")
        reason = (
            f"not written: {load_balancer.service.ref} publishes addresses of nodes, so DNS would verify the "
            "nodes' own hostnames, too; list the hostname in hosts.allow to write it"
        )
        return skipped("ResolvesToNode", reason)
    families = {address.version for address in load_balancer.own_addresses}
    silent = not reply.outcome.tells or load_balancer.unresolved is not None or families & reply.unanswered
    if silent or _is_echo(reply, load_balancer):
        return None
    if reply.outcome is DnsOutcome.NXDOMAIN:
        return refused("NoSuchName", "not verified: DNS has no such hostname")
    if reply.outcome is DnsOutcome.NO_ADDRESS:
        return refused("NoDnsAddress", "not verified: DNS has no address for it")
    known_by = load_balancer.own_names[:_MOST_SHOWN] or (_shown(load_balancer.own_addresses),)
    own = f"{load_balancer.service.ref} ({', '.join(known_by)})"
    return refused(
        "NotVerified",
        f"not verified: DNS answers {_shown(reply.addresses, reply.more)}, not an address of {own}",
        f"not verified: DNS does not answer with an address of {own}",
    )


def _from_memory(answer: DnsAnswer, load_balancer: LoadBalancerPlan, *, written: bool) -> Conclusion:
    """Decide by the last answer of DNS, now that there is none; else by the existing line."""
    code, why = _failure(answer.latest, load_balancer)
    last = answer.last_conclusive
    before = _told(last, load_balancer) if last else None
    if before and before.status is DecisionStatus.SKIPPED:
        return before
    if before and before.status is DecisionStatus.REFUSED:
        stable = before.stable_reason or before.reason
        return refused(before.code, f"{before.reason}; now no usable answer: {why}", stable)
    if last and before:
        stable = f"kept: DNS answered {_matched(last, load_balancer)} and has no usable answer now"
    elif written:
        stable = "kept as written: no usable DNS answer"
    else:
        stable = "not verified: no usable DNS answer"
        return refused(code, f"{stable}: {why}", stable)
    return served("Kept", f"{stable}: {why}", stable)


def _failure(reply: DnsReply, load_balancer: LoadBalancerPlan) -> tuple[str, str]:
    if _is_echo(reply, load_balancer):
        # As an answer of DNS, this would be a circle: withdrawn for its own line, verified without it, again.
        why = (
            f"its server answers {_shown(reply.addresses)}, the relay's own address: it reads the node's "
            "hosts file or serves the cluster; set hosts.dnsServers"
        )
        return "DnsEchoesHosts", why
    if reply.outcome.tells and load_balancer.unresolved is not None:
        names = ", ".join(load_balancer.own_names[:_MOST_SHOWN])
        return "DnsIncomplete", f"its load balancer's own hostname, {names}: {load_balancer.unresolved}"
    return _FAILURES.get(reply.outcome, "DnsIncomplete"), reply.trouble


def _is_echo(reply: DnsReply, load_balancer: LoadBalancerPlan) -> bool:
    return not frozenset(reply.addresses).isdisjoint(load_balancer.hosts_addresses)


def _matched(reply: DnsReply, load_balancer: LoadBalancerPlan) -> str:
    """Return those of its addresses that are the load balancer's; empty if none is."""
    own = frozenset(load_balancer.own_addresses)
    return _shown(address for address in reply.addresses if address in own)


def _shown(addresses: Iterable[IPAddress], more: int = 0) -> str:
    texts = [str(address) for address in addresses]
    more += max(len(texts) - _MOST_SHOWN, 0)
    return ", ".join(texts[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def lines_now(facts: Facts, plans: Iterable[LoadBalancerPlan]) -> Facts:
    """Return the facts in which each line is at the address that its load balancer has now.

    Else one that takes another's relay address (capacity) would have all hostnames that are written there.
    """
    now = {plan.service.ref: plan.hosts_addresses for plan in plans}
    moved: dict[IPAddress, IPAddress | None] = {}
    for address, ref in facts.standing_at.items():
        if address not in (addresses := now.get(ref, ())):
            moved[address] = next((target for target in addresses if target.version == address.version), None)
    if not moved:
        return facts
    standing = {
        name: frozenset(now_at for old in addresses if (now_at := moved.get(old, old)))
        for name, addresses in facts.standing_names.items()
    }
    return replace(facts, standing_names=standing)
