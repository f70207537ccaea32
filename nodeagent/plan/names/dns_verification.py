"""Whether a hostname is verified to be its load balancer's: by the administrator, or by DNS. Pure.

Anyone who can create an Ingress can claim any hostname. Anyone whose hostname also resolves to an address of
the load balancer that claims it has the hostname anyway: writing it takes nothing from anyone. This does not
hold for a load balancer at addresses of nodes (k3s' ServiceLB): hostnames of nodes resolve to them, too.

Fail static: while DNS is not available, its last answer counts. If nothing is remembered (the agent or the
node was restarted), the managed block is the memory: a hostname stays if its line has the relay address of
the load balancer that claims it now. That verifies nothing for another load balancer, whose relay address
differs.
A line that a running agent wanted in its last pass counts as existing, too: it is no less verified if it was
withdrawn because its relay did not answer, or if another program removed it.
"""

from collections.abc import Iterable
from enum import Enum

from nodeagent.config.options import HostsOptions
from nodeagent.model.addresses import IPAddress, covering
from nodeagent.model.desired import Conclusion, refused, served, skipped
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan

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
    match _meaning(answer.latest, load_balancer):
        case _Meaning.CONFIRMS if load_balancer.at_nodes:
            return _resolves_to_node(load_balancer)
        case _Meaning.CONFIRMS:
            matched = _shown(_matched(answer.latest, load_balancer))
            return served("Verified", f"verified: DNS answers {matched}")
        case _Meaning.CONTRADICTS:
            return _contradicted(answer.latest, load_balancer)
        case _Meaning.SAYS_NOTHING:
            return _from_memory(answer, load_balancer, written=written)


_KEPT_UNASKED = served("KeptUnasked", "kept: it is written, and DNS was not queried yet")
_NOT_ASKED_YET = skipped("NotAskedYet", "not verified yet: DNS was not queried")


class _Meaning(Enum):
    """What a reply means for the claim."""

    CONFIRMS = 1
    CONTRADICTS = 2
    SAYS_NOTHING = 3


def _from_memory(answer: DnsAnswer, load_balancer: LoadBalancerPlan, *, written: bool) -> Conclusion:
    """Decide by the last answer of DNS, now that there is none; else by the existing line."""
    code, why = _failure(answer.latest, load_balancer)
    told = answer.last_conclusive
    before = _meaning(told, load_balancer) if told else _Meaning.SAYS_NOTHING
    if told and before is _Meaning.CONTRADICTS:
        conclusion = _contradicted(told, load_balancer)
        stable = conclusion.stable_reason or conclusion.reason
        return refused(conclusion.code, f"{conclusion.reason}; now DNS can't be queried: {why}", stable)
    if told and before is _Meaning.CONFIRMS and load_balancer.at_nodes:
        return _resolves_to_node(load_balancer)
    if told and before is _Meaning.CONFIRMS:
        stable = f"kept: DNS answered {_shown(_matched(told, load_balancer))} and can't be queried now"
        return served("Kept", f"{stable}: {why}", stable)
    if written:
        stable = "kept: it is written, and DNS can't be queried"
        return served("Kept", f"{stable}: {why}", stable)
    stable = "not verified: DNS can't be queried"
    return refused(code, f"{stable}: {why}", stable)


def _meaning(reply: DnsReply, load_balancer: LoadBalancerPlan) -> _Meaning:
    if _matched(reply, load_balancer):
        return _Meaning.CONFIRMS
    if not reply.outcome.tells or load_balancer.unresolved is not None or _is_echo(reply, load_balancer):
        return _Meaning.SAYS_NOTHING
    if any(address.version in reply.unanswered for address in load_balancer.own_addresses):
        return _Meaning.SAYS_NOTHING
    return _Meaning.CONTRADICTS


def _resolves_to_node(load_balancer: LoadBalancerPlan) -> Conclusion:
    reason = (
        f"no line: {load_balancer.service.ref} publishes addresses of nodes, so DNS would verify the nodes' "
        "own hostnames, too; for a line, cover it by hosts.allow"
    )
    return skipped("ResolvesToNode", reason)


def _contradicted(reply: DnsReply, load_balancer: LoadBalancerPlan) -> Conclusion:
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


def _failure(reply: DnsReply, load_balancer: LoadBalancerPlan) -> tuple[str, str]:
    """Return the code and the words for a reply that says nothing about the hostname."""
    if _is_echo(reply, load_balancer):
        # As an answer of DNS, this would be a circle: withdrawn because of its own line, verified without it,
        # and so on forever.
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


def _matched(reply: DnsReply, load_balancer: LoadBalancerPlan) -> tuple[IPAddress, ...]:
    own = frozenset(load_balancer.own_addresses)
    return tuple(address for address in reply.addresses if address in own)


def _shown(addresses: Iterable[IPAddress], more: int = 0) -> str:
    texts = [str(address) for address in addresses]
    more += max(len(texts) - _MOST_SHOWN, 0)
    return ", ".join(texts[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
