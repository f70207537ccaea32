"""The hostnames: where each leads, its certificate, and the images that are pulled from there. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.doctor.findings import CheckVerdict, Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import NameDecision
from nodeagent.model.facts import DnsReply
from nodeagent.sources.kubernetes.questions import RunningPod
from nodeagent.sources.probes.connection_tests import CertificateOutcome, Trust
from nodeagent.sources.probes.image_pull import PullStep, Stage


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


_OWN_NAME = "nodeagent"
_DOCKER_HUB = "docker.io"
_WITHOUT_AGENT = frozenset({Code.IPModeProxy, Code.HostnameOnly, Code.Tolerated, Code.NotProxy})


def registry_of(image: str) -> str:
    """Return the registry's host and port in an image's name: its first part, if it has a dot or a colon.

    As distribution/reference decides it, which every container runtime follows.
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB


def image_findings(pods: Iterable[RunningPod], behind: Mapping[str, Code]) -> list[Finding]:
    """Judge the registries.

    Args:
        pods: those on this node.
        behind: hostnames that lead to a load balancer of this cluster, each with its findings.
    """
    by_registry: dict[str, list[tuple[RunningPod, str]]] = {}
    for pod in pods:
        for image in pod.images:
            registry = registry_of(image)
            if registry.partition(":")[0] in behind:
                by_registry.setdefault(registry, []).append((pod, image))
    findings = [
        finding
        for registry, found in sorted(by_registry.items())
        for finding in _findings(registry, found, behind[registry.partition(":")[0]])
    ]
    elsewhere = "no image of this node's pods comes through a load balancer of this cluster"
    return findings or [Finding(Code.ImagesElsewhere, "images", elsewhere)]


def _findings(registry: str, found: list[tuple[RunningPod, str]], code: Code) -> list[Finding]:
    images = tuple(dict.fromkeys(f"{pod.ref.path}: {image}" for pod, image in found))
    count = len({image for _, image in found})
    what = f"{count} image{'s' if count != 1 else ''} of running pods come from there"
    if code.verdict is CheckVerdict.AFFECTED:
        remedy = ("fix its load balancer: until then, pods whose image is not on the node can't start here",)
        findings = [Finding(Code.ImagesCut, registry, f"{what}, and can't be pulled now", images, remedy)]
    else:
        findings = [Finding(Code.ImagesRemedied, registry, f"{what}, and can be pulled", images)]
    own = tuple(dict.fromkeys(image for pod, image in found if pod.app == _OWN_NAME))
    if own and code not in _WITHOUT_AGENT:
        seen = "nodeagent's own image comes through the load balancer that nodeagent fixes"
        remedy = ("keep nodeagent's image in a registry outside this cluster, or load it into every node",)
        findings.append(Finding(Code.RebootTrap, registry, seen, own, remedy))
    return findings


_BY_STAGE = {
    Stage.NAME: Code.PullName,
    Stage.CONNECT: Code.PullConnect,
    Stage.TLS: Code.PullCertificate,
    Stage.REGISTRY: Code.PullNotRegistry,
    Stage.CREDENTIALS: Code.PullCredentials,
    Stage.MANIFEST: Code.PullManifest,
    Stage.LAYER: Code.PullLayer,
}
_PULL_REMEDIES: Final[Mapping[Code, tuple[str, ...]]] = {
    Code.PullName: (
        "create an address record for the registry's hostname that this node's resolver can see",
    ),
    Code.PullConnect: ("see the connections from this node: nothing accepts them at that address",),
    Code.PullCut: (
        "rejected before TLS because the PROXY header is missing: see the fixes for the load balancer",
    ),
    Code.PullNotRegistry: ("check that the Ingress routes /v2/ to the registry",),
    Code.PullManifest: ("check the image's name and tag, and the platforms it is built for",),
    Code.PullLayer: ("check the ingress controller's limits for body size and time",),
}


def pull_finding(image: str, steps: Sequence[PullStep], own_settings: str) -> Finding:
    """Return one finding for the whole test.

    Args:
        image: its name.
        steps: as tested; the failed one is the last.
        own_settings: the container runtime's own file for this registry, which the test does not
            follow; empty if there is none.
    """
    evidence = [f"{step.stage.value}: {step.seen}" for step in steps]
    if own_settings:
        evidence.append(f"{own_settings} sets the runtime's own mirrors or CAs: this test does not use them")
    last = steps[-1]
    code = _code(last)
    if code is Code.PullWorks:
        return Finding(code, image, "a pull works from here", tuple(evidence))
    remedy = _PULL_REMEDIES.get(code, ())
    if code is Code.PullCertificate and last.certificate is not None:
        remedy = certificate_finding("", "", last.certificate).remedy
    if code is Code.PullCredentials:
        seen = f"works as far as is possible without credentials: {last.seen}"
    else:
        seen = f"fails at: {last.stage.value}: {last.seen}"
    return Finding(code, image, seen, tuple(evidence), remedy)


def _code(last: PullStep) -> Code:
    if last.ok:
        return Code.PullWorks
    if last.outcome is not None and last.outcome.is_cut:
        return Code.PullCut
    return _BY_STAGE[last.stage]
