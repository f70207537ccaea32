"""The hostnames: where each leads, its certificate, and which is an image's registry. Pure."""

from dataclasses import dataclass

from nodeagent.doctor.findings import Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import NameDecision
from nodeagent.model.facts import DnsReply
from nodeagent.sources.probes.connection_tests import CertificateOutcome, Trust


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
        decided = f"{seen.decision.verdict.value}: {seen.decision.reason} [{seen.decision.code}]"
    evidence = (
        f"this host's resolver: {_addresses(seen.host)}",
        f"upstream DNS: {_reply(seen.upstream)}",
        f"CoreDNS: {cluster}",
        f"nodeagent: {decided}",
    )
    remedy: tuple[str, ...] = ()
    if code in {Code.NameUnknown, Code.NameNowhere}:
        remedy = (f"create an address record for {seen.name}",)
    elif code is Code.NameDiffers:
        remedy = (f"look for {seen.name} in the hosts file, and check the order of name sources",)
    return Finding(code, seen.name, words, evidence, remedy)


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
        return Code.NameUnknown if seen.behind_proxy else Code.NameNowhere, "has no address"
    return Code.NameUnclear, "this host's resolver has no answer, and the upstream DNS could not be queried"


def _addresses(addresses: tuple[IPAddress, ...]) -> str:
    return ", ".join(map(str, addresses)) or "no address"


def _reply(reply: DnsReply) -> str:
    if reply.addresses:
        return _addresses(reply.addresses)
    return f"{reply.outcome.value}{f' ({reply.trouble})' if reply.trouble else ''}"


_BY_TRUST = {
    Trust.VALID: Code.CertificateValid,
    Trust.EXPIRED: Code.CertificateExpired,
    Trust.FOREIGN_AUTHORITY: Code.CertificateForeign,
    Trust.WRONG_NAME: Code.CertificateWrongName,
    Trust.UNKNOWN: Code.CertificateUnknown,
}
_CERTIFICATE_REMEDIES = {
    Trust.EXPIRED: (
        "renew it; cert-manager's HTTP-01 self check fails until the short-circuiting is fixed",
        "$ kubectl get certificates,challenges -A",
    ),
    Trust.FOREIGN_AUTHORITY: (
        "make the ingress controller present a certificate of an authority that this machine trusts",
        "or add that authority to the machine's (Debian: update-ca-certificates)",
    ),
    Trust.WRONG_NAME: (
        (
            "the certificate is for another hostname, usually the controller's default: check that the "
            "Ingress's Secret exists"
        ),
    ),
}


def certificate_finding(name: str, where: str, seen: CertificateOutcome) -> Finding:
    """Return the finding for `name`, requested at `where` (a Service's path)."""
    remedy = _CERTIFICATE_REMEDIES.get(seen.trust, ())
    return Finding(_BY_TRUST[seen.trust], name, seen.words, (f"shown by {where}",), remedy)


_DOCKER_HUB = "docker.io"


def registry_of(image: str) -> str:
    """Return the registry's host in an image's name: its first part, if that has a dot or a colon.

    As distribution/reference decides it, which every container runtime follows.
    """
    first, slash, _ = image.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    return first.partition(":")[0] if named else _DOCKER_HUB
