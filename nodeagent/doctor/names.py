"""What the host's resolver, the upstream and CoreDNS answer for a name, side by side. Pure."""

from dataclasses import dataclass

from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.dns import DnsReply


@dataclass(frozen=True, slots=True)
class NameObservation:
    """One name, asked three ways.

    Attributes:
        name: the name.
        host: what this host's resolver says, hosts file included; empty for nothing.
        upstream: what the DNS server answers that the host asks.
        cluster: what CoreDNS answers; None where it could not be asked, and `cluster_why` says why.
        load_balancers: the addresses of the cluster's load balancers.
        relays: the addresses of this node's relay, or of the relay Service.
    """

    name: str
    host: tuple[IPAddress, ...]
    upstream: DnsReply
    cluster: DnsReply | None
    cluster_why: str
    load_balancers: frozenset[IPAddress]
    relays: frozenset[IPAddress]

    @property
    def by_coredns(self) -> bool | None:
        """Whether CoreDNS answers with a relay's address; None where it could not be asked."""
        if self.cluster is None or not self.cluster.outcome.tells:
            return None
        return not self.relays.isdisjoint(self.cluster.addresses)


def name_finding(seen: NameObservation) -> Finding:
    """Judges where the name leads on this host."""
    code, words = _judge(seen)
    cluster = _reply(seen.cluster) if seen.cluster is not None else seen.cluster_why
    evidence = (
        f"this host's resolver: {_addresses(seen.host)}",
        f"upstream DNS: {_reply(seen.upstream)}",
        f"CoreDNS: {cluster}",
    )
    return Finding(code, seen.name, words, evidence, _remedy(code, seen.name))


def _judge(seen: NameObservation) -> tuple[Code, str]:
    host = frozenset(seen.host)
    if not host:
        return _unknown(seen)
    if host <= seen.relays:
        return Code.NameAtRelay, "leads to nodeagent's relay, by a hosts line"
    if host <= seen.load_balancers:
        return Code.NameAtLoadBalancer, "leads to the load balancer"
    if seen.upstream.outcome.tells and not host & frozenset(seen.upstream.addresses):
        return Code.NameDiffers, "this host's resolver leads elsewhere than the upstream"
    return Code.NameElsewhere, "leads to no load balancer of this cluster"


def _unknown(seen: NameObservation) -> tuple[Code, str]:
    if seen.upstream.addresses:
        return Code.NameDiffers, "the upstream knows it, this host's resolver does not"
    if seen.upstream.outcome.tells:
        return Code.NameUnknown, "has no address"
    return Code.NameUnclear, "this host's resolver has no answer, and the upstream could not be asked"


def _remedy(code: Code, name: str) -> tuple[str, ...]:
    match code:
        case Code.NameUnknown:
            return (f"give {name} an address record",)
        case Code.NameDiffers:
            return (f"look for {name} in the hosts file, and at the order of name sources",)
        case _:
            return ()


def _addresses(addresses: tuple[IPAddress, ...]) -> str:
    return ", ".join(map(str, addresses)) or "no address"


def _reply(reply: DnsReply) -> str:
    if reply.addresses:
        return _addresses(reply.addresses)
    return f"{reply.outcome.value}{f' ({reply.trouble})' if reply.trouble else ''}"
