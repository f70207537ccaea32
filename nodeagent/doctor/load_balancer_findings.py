"""Each LoadBalancer Service: is it short-circuited, does that do harm, and what is the best fix. Pure."""

import shlex
from collections.abc import Sequence
from ipaddress import ip_network

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.doctor.findings import CheckStatus, Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import Node, Service
from nodeagent.plan.detection.decision import LISTED, Detection
from nodeagent.plan.detection.providers import PROVIDERS
from nodeagent.plan.detection.readers import Provider

_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""Where an address means something only within one network (RFC 1918, 6598 and 4193)."""
# Domains of their annotations and classes: metallb.io and metallb.universe.tf, kube-vip.io, purelb.io.
_ANNOUNCERS = {"metallb.": "MetalLB", "kube-vip.io/": "kube-vip", "purelb.io/": "PureLB"}
LEFT_ALONE = frozenset({"Ignored", "ExcludedByAnnotation"})
"""The detection's codes for load balancers that someone excluded."""
# Controllers of DigitalOcean, Hetzner, Oracle, Scaleway: the annotations that name a certificate.
_CERTIFICATES = (
    "service.beta.kubernetes.io/do-loadbalancer-certificate-id",
    "load-balancer.hetzner.cloud/http-certificates",
    "load-balancer.hetzner.cloud/http-managed-certificate-name",
    "service.beta.kubernetes.io/oci-load-balancer-tls-secret",
    "service.beta.kubernetes.io/scw-loadbalancer-certificate-ids",
)
_REMEDIED = frozenset({Code.RemediedByDnat, Code.RemediedByHosts})
_SEEN = {
    Code.NotProxy: "not known to send the PROXY header; without it, short-circuiting loses nothing",
    Code.Ignored: "excluded by configuration or annotation: no connection was made",
    Code.IPModeProxy: "not short-circuited: ipMode Proxy",
    Code.HostnameOnly: "not short-circuited: published by hostname, without an address",
    Code.NoAddress: "no address yet: the provider has not assigned one",
    Code.Tolerated: "works from this node without a fix",
    Code.LoadBalancerRemedied: "short-circuited by kube-proxy, and fixed on this node",
    Code.ShortCircuited: "short-circuited by kube-proxy, and rejected because the PROXY header is missing",
    Code.IPModeIgnored: "ipMode Proxy, yet short-circuited: what handles Services here ignores it",
    Code.Troubled: "connections from this node fail, and short-circuiting is not the only reason",
    Code.ShortCircuitedByObject: "sends the PROXY header, and is short-circuited on every node",
    Code.TerminatesTLS: "terminates TLS, and is short-circuited: the controller gets TLS of nodes and pods",
    Code.ProxyUnknown: "nothing says whether it sends the PROXY header; if so, it is short-circuited",
    Code.LoadBalancerUnclear: "no connection from this node shows a known case",
}

_BY_FLEET = "short-circuited on every node, and fixed: all agents are in sync"


class LoadBalancerObservation(Struct, frozen=True):
    """One Service and what is known of it.

    Attributes:
        service: the object.
        detected: whether it is known to send PROXY, and what says so.
        paths: the codes of its paths from this node; None off the node.
        provider: its provider; None if unknown.
        node_addresses: those of all nodes that are known.
        by_fleet: whether the agents of all nodes report that they serve what they should.
    """

    service: Service
    detected: Detection
    paths: tuple[Code, ...] | None
    provider: Provider | None
    node_addresses: frozenset[IPAddress] = frozenset()
    by_fleet: bool = False


def load_balancer_finding(seen: LoadBalancerObservation, kubernetes: str, policy_api: str = "") -> Finding:
    """Return the finding.

    `kubernetes` is the cluster's version, `policy_api` that of its MutatingAdmissionPolicies; each is empty
    if unknown.
    """
    code = _code(seen)
    evidence = _evidence(seen, kubernetes)
    if code in {Code.ShortCircuited, Code.LoadBalancerRemedied} and seen.paths:
        evidence.append("to try the pull of an image from a registry behind it: crictl pull REF")
    remedy = _remedy(code, seen, policy_api)
    words = _BY_FLEET if seen.by_fleet and code is Code.LoadBalancerRemedied else _SEEN[code]
    if code is Code.ProxyUnknown and seen.detected.status is DecisionStatus.REFUSED:
        words = seen.detected.reason
    return Finding.of(code, seen.service.ref.path, words, tuple(evidence), remedy)


def _code(seen: LoadBalancerObservation) -> Code:
    if seen.detected.code in LEFT_ALONE:
        return Code.Ignored
    vip, absent = _short_circuited(seen.service)
    # On a node, unless it was seen to be reached.
    reached = set(seen.paths or ()) == {Code.ThroughLoadBalancer}
    if vip and not seen.detected.proxy and not reached and certificate_of(seen.service):
        return Code.TerminatesTLS
    if seen.paths is None:
        return _off_node(seen, absent=None if vip else absent)
    if not seen.detected.proxy:
        return Code.Troubled if _troubled(seen.paths) else Code.NotProxy
    return absent if absent is Code.NoAddress else _of_paths(seen.paths, None if vip else absent)


def _off_node(seen: LoadBalancerObservation, absent: Code | None) -> Code:
    """Return the code without any connection; `absent`: why no kube-proxy short-circuits it, if none does."""
    if seen.detected.proxy and absent is None:
        return Code.LoadBalancerRemedied if seen.by_fleet else Code.ShortCircuitedByObject
    if (
        not seen.detected.proxy
        and seen.detected.stated
        and seen.detected.status is not DecisionStatus.REFUSED
    ):
        return Code.NotProxy
    return absent or Code.ProxyUnknown


def _of_paths(paths: Sequence[Code], absent: Code | None) -> Code:
    """Return the code of one that sends PROXY; `absent` as above."""
    if Code.ShortCircuitedAndCut in paths:
        return Code.IPModeIgnored if absent else Code.ShortCircuited
    if _troubled(paths):
        return Code.Troubled
    if not paths or Code.PathUnclear in paths:
        return Code.LoadBalancerUnclear
    return absent or (Code.LoadBalancerRemedied if _REMEDIED.intersection(paths) else Code.Tolerated)


def _troubled(paths: Sequence[Code]) -> bool:
    return any(code.status is CheckStatus.AFFECTED for code in paths)


def _short_circuited(service: Service) -> tuple[bool, Code]:
    """Whether kube-proxy short-circuits it according to its status (KEP-1860), and if not, why not."""
    if any(point.ip is not None and point.ip_mode != "Proxy" for point in service.points):
        return True, Code.ShortCircuited
    if any(point.ip is not None for point in service.points):
        return False, Code.IPModeProxy
    return False, Code.HostnameOnly if service.points else Code.NoAddress


def _evidence(seen: LoadBalancerObservation, kubernetes: str) -> list[str]:
    lines = []
    for point in seen.service.points:
        mode = f"ipMode {point.ip_mode or 'not set, which means VIP'}"
        parts = [
            f"{point.ip} ({mode})" if point.ip else "",
            f"hostname {point.hostname}" if point.hostname else "",
        ]
        lines.append("published as " + ", ".join(part for part in parts if part))
    ports = ", ".join(f"{port.port}/{port.protocol}" for port in seen.service.ports)
    if ports:
        lines.append(f"ports {ports}")
    if seen.detected.status is not DecisionStatus.REFUSED:
        lines.append(seen.detected.reason)
    lines += seen.detected.remarks
    if key := certificate_of(seen.service):
        lines.append(f"terminates TLS: annotation {key}")
    if seen.detected.proxy and kubernetes:
        lines.append(f"Kubernetes {kubernetes}")
    return lines


def _remedy(code: Code, seen: LoadBalancerObservation, policy_api: str) -> tuple[str, ...]:
    of_nodes = [address for address in seen.service.load_balancer_ips if address in seen.node_addresses]
    told = ", ".join(map(str, of_nodes))
    why = f"the status names nodes ({told}), as k3s' ServiceLB writes it, which sends no header"
    tolerant = code is Code.ShortCircuitedByObject and "traefik" in seen.service.ref.name
    hint = (_TRAEFIK,) if tolerant else ()
    if code is Code.ShortCircuitedByObject and of_nodes and seen.detected.code != LISTED:
        return (*hint, why, _SERVICELB)
    if code in {Code.ShortCircuited, Code.ShortCircuitedByObject, Code.TerminatesTLS}:
        tls = code is Code.TerminatesTLS
        # Controllers set ipMode by themselves only where PROXY is on, and the last way, a relay, can't help.
        provider = replace(seen.provider, ip_mode="") if tls and seen.provider else seen.provider
        steps = remedies(seen.service, provider, policy_api)
        return (*hint, *(steps[:-1] if tls else steps))
    if code is Code.ProxyUnknown:
        # To list it would help only if something else were in front.
        return (why, *_find_out(seen)[:2]) if of_nodes else _find_out(seen)
    if code is Code.LoadBalancerUnclear and not seen.paths:
        return ("no connection was made: it has no TCP port, or no address that this node can resolve",)
    if code is Code.HostnameOnly and seen.detected.proxy and seen.paths is None:
        return ("if connections from nodes or pods time out nevertheless: docs/fixes.md",)
    return _UPDATE if code is Code.IPModeIgnored else ()


def _find_out(seen: LoadBalancerObservation) -> tuple[str, ...]:
    ref = seen.service.ref
    if seen.detected.status is DecisionStatus.REFUSED:
        return (f"correct the annotations of Service {ref.path}",)
    return (
        "run nodeagent doctor on a node: there, it connects and sees whether the header is required",
        "$ nodeagent doctor",
        "if the load balancer sends the header, say so in nodeagent's configuration (docs/configuration.md):",
        "  loadBalancers:",
        "    services:",
        f"      - namespace: {ref.namespace}",
        f"        name: {ref.name}",
    )


_UPDATE = (
    "update what handles Services to a version that honors ipMode",
    "(kube-proxy 1.30, Cilium 1.17 but not 1.18.0, kube-router 2.9, Antrea 2.0, Calico eBPF 3.30)",
    "or let nodeagent serve it: it detects the short-circuiting in the kernel's rules",
)
_SERVICELB = (
    "if the cloud's load balancer is in front, leave the status to its controller: switch ServiceLB off (k3s "
    "server --disable servicelb)"
)
_TRAEFIK = (
    "first run nodeagent doctor on a node: Traefik accepts connections without the header, and then only the "
    "client's address is lost (docs/controllers.md)"
)
_SIDE_EFFECTS = (
    "(this also changes other things: Service and Ingresses show the hostname instead of the address, "
    "external-dns creates aliases for it, and traffic of nodes and pods goes out to the load balancer and "
    "comes back)"
)
_DETOUR = "traffic of nodes and pods then goes out to the load balancer and comes back"
_INSTALL = (
    "on the nodes: install nodeagent, which needs nothing from the provider (docs/install.md, also for "
    "Cilium and Calico's eBPF)"
)
_PLACEHOLDER = "lb.example.com"
_BY_POLICY = (
    (
        "without an agent: let a policy in the API server set ipMode: Proxy (see docs/fixes.md "
        "for when to use it)"
    ),
    "$ nodeagent doctor --policy > policy.yaml",
)


def provider_of(service: Service, node: Node | None) -> Provider | None:
    """Return the provider: by an annotation that only one provider knows, else by the node's cloud."""
    of_kind = [provider for provider in PROVIDERS if provider.applies(service)]
    for provider in of_kind:
        keys = (switch.key.partition("{port}")[0] for switch in provider.switches)
        if any(known.startswith(key) for key in keys for known in service.annotations):
            return provider
    scheme = node.provider_id.partition("://")[0] if node and "://" in node.provider_id else ""
    return next((provider for provider in of_kind if scheme in provider.schemes), None)


def remedies(service: Service, provider: Provider | None, policy_api: str = "") -> tuple[str, ...]:
    """Return the ways out, the best first.

    Args:
        service: the load balancer.
        provider: its provider; None if unknown.
        policy_api: the version in which it serves MutatingAdmissionPolicies; empty if it does not.
    """
    if name := announced_by(service):
        return (
            f"ipMode: Proxy is no fix here: {name} announces the address, and kube-proxy's rules accept it",
            "on the nodes: install nodeagent (docs/fixes.md)",
        )
    return (
        *_by_ip_mode(service, provider),
        *_by_hostname(service, provider),
        *(_BY_POLICY if policy_api else ()),
        _INSTALL,
    )


def certificate_of(service: Service) -> str:
    """Return the annotation by which its load balancer terminates TLS; empty if none does. Pure."""
    return next((key for key in _CERTIFICATES if service.annotations.get(key)), "")


def announced_by(service: Service) -> str:
    """Return the program that announces the Service's address on a node; empty if none is known to. Pure.

    By the annotations that it writes, or the class that names it. Its address works only as long as
    kube-proxy's rules accept it on that node.
    """
    told = [*service.annotations, service.load_balancer_class or ""]
    return next((name for sign, name in _ANNOUNCERS.items() if any(sign in text for text in told)), "")


def _by_ip_mode(service: Service, provider: Provider | None) -> list[str]:
    if provider is None:
        return ["without an agent: if the cloud's controller can set ipMode: Proxy, switch that on"]
    lines = []
    if provider.ip_mode:
        lines.append(
            f"without an agent: let the cloud's controller set ipMode: Proxy ({provider.ip_mode}); {_DETOUR}"
        )
    if provider.ip_mode_on_request:
        lines.append(f"without an agent: ask {provider.name}'s controller for ipMode: Proxy; {_DETOUR}")
        lines.append(annotate(service, provider.ip_mode_on_request))
    return lines


def _by_hostname(service: Service, provider: Provider | None) -> list[str]:
    hostname = provider.hostname if provider else ""
    if not hostname:
        return []
    what = "without an agent: publish a hostname instead of the address"
    if _PLACEHOLDER in hostname:
        public = [
            address
            for address in service.load_balancer_ips
            if not (address.is_link_local or any(address in network for network in _PRIVATE))
        ]
        addresses = ", ".join(map(str, public)) or "its address in the DNS that the nodes use"
        what += (
            f"; first create an address record with {addresses} for a hostname of your own, and write it here"
        )
    return [what, annotate(service, hostname), _SIDE_EFFECTS]


def annotate(service: Service, annotation: str) -> str:
    """Return the command, ready to paste, for an annotation in YAML (`key: "value"`)."""
    key, _, value = annotation.partition(": ")
    pair = shlex.quote(f"{key}={value.strip(chr(34))}")
    return f"$ kubectl annotate service -n {service.ref.namespace} {service.ref.name} {pair}"
