"""Each LoadBalancer Service: is it short-circuited, does that do harm, and what is the best fix. Pure.

And the fix that needs no agent: a MutatingAdmissionPolicy that sets `ipMode: Proxy` in each status (KEP-1860;
KEP-3962: v1beta1 in 1.34, v1 in 1.36). It uses a JSON patch, since an apply configuration may not change a
part of an atomic list, and only CEL's core, the same in every version.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from textwrap import indent

from msgspec import Struct

from nodeagent.doctor.findings import CheckStatus, Code, Finding
from nodeagent.errors import SourceError, one_line
from nodeagent.model.addresses import IPAddress
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.identity.identify import LISTED, Identity
from nodeagent.plan.identity.ways_out import ways_out
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers

LEFT_ALONE = frozenset({"Ignored", "ExcludedByAnnotation"})
"""The codes for load balancers that someone excluded."""
_REMEDIED = frozenset({Code.RemediedByDnat, Code.RemediedByHosts})
_SEEN = {
    Code.NotProxy: "not known to send the PROXY header; without it, short-circuiting loses nothing",
    Code.Ignored: "excluded by configuration or annotation: no connection was made",
    Code.IPModeProxy: "not short-circuited: ipMode Proxy",
    Code.NotShortCircuited: "not short-circuited: kube-proxy leaves its address alone",
    Code.HostnameOnly: "not short-circuited: published by hostname, without an address",
    Code.NoAddress: "no address yet: the provider has not assigned one",
    Code.Tolerated: "works from this node without a fix",
    Code.LoadBalancerRemedied: "short-circuited by kube-proxy, and fixed on this node",
    Code.ShortCircuited: "short-circuited by kube-proxy, and rejected because the PROXY header is missing",
    Code.IPModeIgnored: "ipMode Proxy, yet short-circuited: what handles Services here ignores it",
    Code.Troubled: "connections from this node fail, and short-circuiting is not the only reason",
    Code.ShortCircuitedByObject: "sends the PROXY header, and is short-circuited on every node",
    Code.TerminatesTLS: "terminates TLS, and is short-circuited: the controller gets TLS from nodes and pods",
    Code.ProxyUnknown: "nothing says whether it sends the PROXY header; if so, it is short-circuited",
    Code.LoadBalancerUnclear: "the connections from this node match no known case",
}

_BY_FLEET = "short-circuited on every node, and fixed: all agents are in sync"


class LoadBalancerObservation(Struct, frozen=True):
    """One Service; `paths` are the codes of its paths from this node, None off the node.

    `by_fleet`: all nodes' agents say that they serve what they should; `refusal`: why it is refused here.
    """

    service: Service
    identity: Identity
    paths: tuple[Code, ...] | None
    node_addresses: frozenset[IPAddress] = frozenset()
    by_fleet: bool = False
    refusal: tuple[str, ...] = ()


def load_balancer_finding(seen: LoadBalancerObservation, kubernetes: str, policy_api: str = "") -> Finding:
    """Return the finding, by the cluster's version and that of its MutatingAdmissionPolicies, if known."""
    code = _code(seen)
    evidence = _evidence(seen, kubernetes)
    if code in {Code.ShortCircuited, Code.LoadBalancerRemedied} and seen.paths:
        evidence.append("to test an image pull from a registry behind it: crictl pull REF")
    words = _BY_FLEET if seen.by_fleet and code is Code.LoadBalancerRemedied else _SEEN[code]
    if code is Code.ProxyUnknown and seen.identity.status is DecisionStatus.REFUSED:
        words = seen.identity.reason
    return Finding.of(code, seen.service.ref.path, words, evidence, _remedy(code, seen, policy_api))


def _code(seen: LoadBalancerObservation) -> Code:
    if seen.identity.code in LEFT_ALONE:
        return Code.Ignored
    absent = _not_short_circuited(seen)
    # On a node, unless it was seen to be reached.
    reached = set(seen.paths or ()) == {Code.ThroughLoadBalancer}
    if not absent and not reached and seen.identity.terminated:
        return Code.TerminatesTLS
    if seen.paths is None:
        return _off_node(seen, absent)
    if not seen.identity.proxy:
        return Code.Troubled if _troubled(seen.paths) else Code.NotProxy
    return absent if absent is Code.NoAddress else _of_paths(seen.paths, absent)


def _off_node(seen: LoadBalancerObservation, absent: Code | None) -> Code:
    """Return the code without any connection; `absent`: why it is not short-circuited, if it is not."""
    if seen.identity.terminated and absent:
        return absent
    if seen.identity.proxy and absent is None:
        return Code.LoadBalancerRemedied if seen.by_fleet else Code.ShortCircuitedByObject
    refused = seen.identity.status is DecisionStatus.REFUSED
    if seen.identity.stated and not seen.identity.proxy and not refused:
        return Code.NotProxy
    return absent or Code.ProxyUnknown


def _of_paths(paths: Sequence[Code], absent: Code | None) -> Code:
    """Return the code of one that sends PROXY; `absent` as above."""
    if Code.ShortCircuitedAndCut in paths:
        return Code.IPModeIgnored if absent is Code.IPModeProxy else Code.ShortCircuited
    if _troubled(paths):
        return Code.Troubled
    if not paths or Code.PathUnclear in paths:
        return Code.LoadBalancerUnclear
    return absent or (Code.LoadBalancerRemedied if _REMEDIED.intersection(paths) else Code.Tolerated)


def _troubled(paths: Sequence[Code]) -> bool:
    return any(code.status is CheckStatus.AFFECTED for code in paths)


def _not_short_circuited(seen: LoadBalancerObservation) -> Code | None:
    """Return why no kube-proxy short-circuits it according to its status; None if it does."""
    service = seen.service
    handled = {address for address in service.load_balancer_ips if not _why_left_alone(seen, address)}
    if not handled.isdisjoint(service.short_circuited_ips):
        return None
    if handled:
        return Code.IPModeProxy
    if service.load_balancer_ips:
        return Code.NotShortCircuited
    return Code.HostnameOnly if service.points else Code.NoAddress


def _why_left_alone(seen: LoadBalancerObservation, address: IPAddress) -> str:
    """Why kube-proxy does not handle the address, whatever its ipMode; empty if nothing says so.

    It serves a Service in the families of its ClusterIPs alone (kubernetes: pkg/proxy/serviceport.go).
    """
    service, row = seen.service, seen.identity.provider
    if all(ip.version != address.version for ip in service.cluster_ips):
        return f"not short-circuited, as kube-proxy serves no IPv{address.version} ClusterIP of the Service"
    key, _, wanted = row.detour.replace('"', "").partition(": ") if row else ("", "", "")
    value = service.annotations.get(key)  # Huawei's own, with externalTrafficPolicy Local: onlyLocal
    if row and value in {wanted, "onlyLocal"} and address not in service.external_ips:
        return f"not short-circuited, as {row.name} passes it through: annotation {key}={value}"
    return ""


def _evidence(seen: LoadBalancerObservation, kubernetes: str) -> list[str]:
    lines, identity = [], seen.identity
    for point in seen.service.points:
        address = f"{point.ip} (ipMode {point.ip_mode or 'not set, which means VIP'})" if point.ip else ""
        hostname = f"hostname {point.hostname}" if point.hostname else ""
        why = _why_left_alone(seen, point.ip) if point.ip else ""
        lines.append("published as " + ", ".join(filter(None, (address, hostname, why))))
    if ports := ", ".join(f"{port.port}/{port.protocol}" for port in seen.service.ports):
        lines.append(f"ports {ports}")
    if identity.status is not DecisionStatus.REFUSED:
        lines.append(identity.reason)
    lines += identity.remarks
    if identity.known_by and identity.provider is not None:
        lines.append(f"served by {identity.provider.name}: {identity.known_by}")
    lines += [f"nodeagent can't serve it: {why}" for why in seen.refusal]
    if identity.proxy and kubernetes:
        lines.append(f"Kubernetes {kubernetes}")
    return lines


def _remedy(code: Code, seen: LoadBalancerObservation, policy_api: str) -> tuple[str, ...]:
    nodes = seen.node_addresses if not seen.identity.announcer else ()
    of_nodes = [address for address in seen.service.load_balancer_ips if address in nodes]
    addresses = ", ".join(map(str, of_nodes))
    why = f"the status names nodes ({addresses}), as k3s' ServiceLB writes it; ServiceLB sends no header"
    tolerant = code is Code.ShortCircuitedByObject and "traefik" in seen.service.ref.name
    hint = (_TRAEFIK,) if tolerant else ()
    if code is Code.ShortCircuitedByObject and of_nodes and seen.identity.code != LISTED:
        return (*hint, why, _SERVICELB)
    if code in {Code.ShortCircuited, Code.ShortCircuitedByObject, Code.TerminatesTLS}:
        ways = ways_out(seen.service, seen.identity, policy_api)
        useless = {*(("nodeagent",) if seen.refusal else ()), *(("ip-mode", "policy") if of_nodes else ())}
        ways = tuple(way for way in ways if way.way not in useless)
        return (*hint, *(step for way in ways for step in way.steps), *_LAST)
    if code is Code.ProxyUnknown:
        # To list it would help only if something else were in front.
        return (why, *_find_out(seen)[:2]) if of_nodes else _find_out(seen)
    if code is Code.LoadBalancerUnclear and not seen.paths:
        return ("no connection was made: it has no TCP port, or no address that this node can resolve",)
    if code is Code.HostnameOnly and seen.identity.proxy and seen.paths is None:
        return ("if connections from nodes or pods time out nevertheless, see docs/fixes.md",)
    return _UPDATE if code is Code.IPModeIgnored else ()


def _find_out(seen: LoadBalancerObservation) -> tuple[str, ...]:
    ref = seen.service.ref
    if seen.identity.status is DecisionStatus.REFUSED:
        return (f"correct the annotations of Service {ref.path}",)
    return (
        "run nodeagent doctor on a node, where it can see whether the header is required",
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
_LAST = (
    (
        "if only certificates fail: cert-manager 1.21 and later can wait instead of checking "
        "(spec.acme.solvers[].waitInsteadOfSelfCheck); this helps neither pulls nor calls"
    ),
    "then run nodeagent doctor again",
)


POLICY_NAME = "nodeagent-ip-mode-proxy"
_MOST_ADDRESSES = 32
"""For one Service. CEL's core can't count a list, so each place is written out."""

_ADDRESSES = "object.status.loadBalancer.ingress"
# Any other mode is the controller's own choice (KEP-6272 adds Router), and is kept.
_SHORT_CIRCUITED = "has({0}.ip) && (!has({0}.ipMode) || {0}.ipMode == 'VIP')"
# Without the policy the cluster is as it was before: failurePolicy never holds back a controller's write.
_POLICY = Template(Path(__file__).with_name("ip_mode_policy.yaml.tmpl").read_text("ascii"))


Target = tuple[Service, Identity]


def policy_targets(
    services: Iterable[Service], identities: Mapping[ObjectRef, Identity]
) -> tuple[Target, ...]:
    """Return the Services that send PROXY, or terminate TLS, and are published by an address, sorted.

    One that has `ipMode: Proxy` already is among them: the policy may be the one that set it.
    """
    return tuple(
        (service, identity)
        for service in sorted(services, key=lambda service: service.ref)
        if any(point.ip is not None for point in service.points)
        if (identity := identities[service.ref]).code not in LEFT_ALONE
        if identity.proxy or identity.terminated
    )


def policy_text(targets: Iterable[Target], cluster: ClusterAnswers) -> str:
    """Return the policy and its binding as YAML for kubectl, with comments on how to use it.

    Raises SourceError: no Service needs it, or the API server has no such policies.
    """
    wanted = tuple(targets)
    if not wanted:
        raise SourceError(
            "no policy: no LoadBalancer Service with an address is known to send the PROXY header or to "
            "terminate TLS; nodeagent doctor shows what was detected of each"
        )
    left_out = [
        f"{service.ref.path}: {identity.announcer} announces its address on a node, where kube-proxy's "
        "rules accept the traffic: with ipMode: Proxy, it would be lost for everyone"
        for service, identity in wanted
        if identity.announcer
    ]
    covered = [(service, identity) for service, identity in wanted if not identity.announcer]
    if not covered:
        raise SourceError(f"no policy: {'; '.join(left_out)}; nodeagent doctor names the other fixes")
    if not cluster.policy_api:
        why = cluster.why.get("policy_api") or (
            f"the API server ({cluster.version or 'version unknown'}) does not serve "
            "MutatingAdmissionPolicy; 1.36 and later do by default, 1.34 and 1.35 with "
            "--feature-gates=MutatingAdmissionPolicy=true and "
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true"
        )
        raise SourceError(f"no policy: {why}; nodeagent doctor names the other fixes")
    text = _POLICY.substitute(
        version=cluster.policy_api,
        name=POLICY_NAME,
        services=indent(" ||\n".join(map(_condition, covered)), " " * 6),
        addresses=_ADDRESSES,
        entry_is_short_circuited=_SHORT_CIRCUITED.format("entry"),
        place_is_short_circuited=_SHORT_CIRCUITED.format(f"{_ADDRESSES}[i]"),
        places=", ".join(map(str, range(_MOST_ADDRESSES))),
    )
    comments = (*_head(covered), *(one_line(f"Left out: {note}") for note in left_out))
    return "".join(f"# {line}\n" for line in comments) + text


def _condition(target: Target) -> str:
    service, identity = target
    ref = service.ref
    terms = [
        f"object.metadata.namespace == {_literal(ref.namespace)}",
        f"object.metadata.name == {_literal(ref.name)}",
    ]
    if identity.annotations:
        terms.append("has(object.metadata.annotations)")
    for key, value in identity.annotations.items():
        terms.append(f"{_literal(key)} in object.metadata.annotations")
        terms.append(f"object.metadata.annotations[{_literal(key)}] == {_literal(value)}")
    return f"({' && '.join(terms)})"


def _literal(text: str) -> str:
    """Return a CEL string ("Language definition", "Strings"): all but printable ASCII is escaped."""
    letters = (
        letter
        if letter.isascii() and letter.isprintable() and letter not in "'\\"
        else f"\\U{ord(letter):08x}"
        for letter in text
    )
    return f"'{''.join(letters)}'"


def _head(targets: Iterable[Target]) -> Iterator[str]:
    yield "Sets ipMode: Proxy on each write of the status of these Services, so that kube-proxy no longer"
    yield "short-circuits their addresses. Never do this where nodes announce the address: docs/fixes.md"
    for service, identity in targets:
        points = (point for point in service.points if point.ip is not None)
        addresses = ", ".join(f"{point.ip} (ipMode {one_line(point.ip_mode or 'VIP')})" for point in points)
        yield one_line(f"  {service.ref.path}: {addresses}: {identity.reason}")
    yield "Save it, then: kubectl apply -f FILE. It acts on the next write of a status; to have one at once:"
    for service, _ in targets:
        names = f"-n {shlex.quote(one_line(service.ref.namespace))} {shlex.quote(one_line(service.ref.name))}"
        yield f"""  kubectl patch service {names} --subresource=status --type=merge -p '{{"status":{{}}}}'"""
    yield f"To remove it: kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy {POLICY_NAME}"
    yield "and the controller's next write restores its own ipMode."
