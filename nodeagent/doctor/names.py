"""The hostnames: where each leads, and the hosts lines that decide it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.doctor.findings import Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, NameDecision
from nodeagent.model.facts import DnsReply, UserHostsLine


@dataclass(frozen=True, slots=True)
class NameObservation:
    """One hostname, looked up in three ways.

    Attributes:
        name: the hostname.
        host: the answer of this host's resolver, hosts file included; empty for none.
        upstream: the answer of the DNS server that the host queries.
        cluster: the answer of CoreDNS; None if it could not be queried, and `cluster_why` says why.
        load_balancers: the addresses of the cluster's load balancers.
        relays: the addresses of this node's relay, or of the relay Service.
        decision: what nodeagent decides on the hostname; None if no object claims it.
        behind_proxy: whether it is claimed for a load balancer that sends the PROXY header.
    """

    name: str
    host: tuple[IPAddress, ...]
    upstream: DnsReply
    cluster: DnsReply | None
    cluster_why: str
    load_balancers: frozenset[IPAddress]
    relays: frozenset[IPAddress]
    decision: NameDecision | None = None
    behind_proxy: bool = False

    @property
    def by_coredns(self) -> bool | None:
        """Whether CoreDNS answers with a relay's address; None if it could not be queried."""
        if self.cluster is None or not self.cluster.outcome.tells:
            return None
        return not self.relays.isdisjoint(self.cluster.addresses)


def name_finding(seen: NameObservation) -> Finding:
    """Judge where the hostname leads on this host."""
    code, words = _judge(seen)
    cluster = _reply(seen.cluster) if seen.cluster is not None else seen.cluster_why
    decided = "no object of the cluster claims it"
    if seen.decision is not None:
        decided = f"{seen.decision.status.value}: {seen.decision.reason} [{seen.decision.code}]"
    evidence = (
        f"this host's resolver: {_addresses(seen.host)}",
        f"upstream DNS: {_reply(seen.upstream)}",
        f"CoreDNS: {cluster}",
        f"nodeagent: {decided}",
    )
    remedy: tuple[str, ...] = ()
    if code is Code.NameUnknown:
        remedy = (f"create an address record for {seen.name}",)
    elif code is Code.NameDiffers:
        remedy = (f"look for {seen.name} in the hosts file, and check the order of name sources",)
    return Finding.of(code, seen.name, words, evidence, remedy)


def _judge(seen: NameObservation) -> tuple[Code, str]:
    host = frozenset(seen.host)
    if not host:
        return _unknown(seen)
    if host <= seen.relays:
        return Code.NameAtRelay, "leads to nodeagent's relay, through a hosts line"
    if host <= seen.load_balancers:
        return Code.NameAtLoadBalancer, "leads to the load balancer"
    if seen.upstream.outcome.tells and not host & frozenset(seen.upstream.addresses):
        return Code.NameDiffers, "this host's resolver returns other addresses than the upstream DNS"
    return Code.NameElsewhere, "leads to no load balancer of this cluster"


def _unknown(seen: NameObservation) -> tuple[Code, str]:
    if seen.upstream.addresses:
        return Code.NameDiffers, "the upstream DNS has it, this host's resolver does not"
    if seen.upstream.outcome.tells:
        if seen.behind_proxy:
            return Code.NameUnknown, "has no address"
        return Code.NameElsewhere, "has no address, and belongs to no load balancer that sends the header"
    return Code.NameUnclear, "this host's resolver has no answer, and the upstream DNS could not be queried"


def _addresses(addresses: tuple[IPAddress, ...]) -> str:
    return ", ".join(map(str, addresses)) or "no address"


def _reply(reply: DnsReply) -> str:
    if reply.addresses:
        return _addresses(reply.addresses)
    return f"{reply.outcome.value}{f' ({reply.trouble})' if reply.trouble else ''}"


def hosts_line_findings(
    desired: Desired, user_names: Mapping[str, UserHostsLine], file: str
) -> list[Finding]:
    """Return the user's own lines that lead a load balancer's hostname elsewhere.

    Args:
        desired: what nodeagent decides on each hostname.
        user_names: the hostnames that the hosts file sets outside the managed block.
        file: the hosts file, for a person.
    """
    right = {
        decision.load_balancer: {*decision.addresses, *decision.relay_addresses}
        for decision in desired.load_balancers
    }
    found = {}
    for name in desired.names:
        if name.load_balancer is None or name.code not in {"UserLine", "HairpinProxyLine"}:
            continue
        line = user_names[name.name]
        remedy: tuple[str, ...]
        if line.by_hairpin_proxy:
            code, seen = (
                Code.HairpinProxyLine,
                f"hairpin-proxy's old line sends {name.name} to {line.address}",
            )
            remedy = ("let nodeagent replace it", "$ nodeagent apply --adopt")
        elif line.address in map(str, right[name.load_balancer]):
            continue
        else:
            code = Code.StaleHostsLine
            seen = f"sends {name.name} to {line.address}, which is not an address of its load balancer"
            remedy = (f"remove line {line.line_number} of {file}, unless it is there on purpose",)
        found[name.name] = Finding.of(code, f"{file}:{line.line_number}", seen, remedy=remedy)
    return list(found.values())


def name_order_findings(order: Sequence[str]) -> list[Finding]:
    """Return what is wrong with the order of name sources (nsswitch.conf), if hosts lines are used."""
    first = next((source for source in order if source in {"files", "dns", "resolve"}), "")
    # nss-resolve reads the hosts file itself (systemd-resolved.service(8), ReadEtcHosts=).
    if first != "dns":
        return []
    seen = f"hosts: {' '.join(order)}: DNS answers before the hosts file, so hosts lines have no effect"
    remedy = ("move files before dns in the hosts line of /etc/nsswitch.conf, or rely on DNAT alone",)
    return [Finding.of(Code.FilesNotFirst, "nsswitch.conf", seen, remedy=remedy)]
