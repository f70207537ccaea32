"""What can be done about a short-circuited load balancer: the ways out, the best first. Pure."""

import shlex
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Literal

from msgspec import Struct

from nodeagent.model.objects import Service
from nodeagent.plan.identity.identify import Identity
from nodeagent.plan.identity.rows import Provider, shown

Way = Literal["announced", "ip-mode", "ip-mode-on-request", "detour", "hostname", "policy", "nodeagent"]
"""`announced` says why setting ipMode is none; the rest are fixes."""


class WayOut(Struct, frozen=True):
    """One way, and its steps: a sentence, a command that begins with `$ `, what else it changes."""

    way: Way
    steps: tuple[str, ...]


def ways_out(service: Service, identity: Identity, policy_api: str = "") -> tuple[WayOut, ...]:
    """Return the ways out for a Service, the best first.

    `policy_api` is the version in which the cluster serves MutatingAdmissionPolicies; empty if it does not.
    """
    if name := identity.announcer:
        why = f"ipMode: Proxy doesn't help: {name} announces the address, and kube-proxy's rules accept it"
        instead = (
            f"{name} adds no PROXY header: if nothing in front of it does, switch PROXY off at the ingress "
            "controller"
        )
        return (WayOut("announced", (why, instead)), WayOut("nodeagent", (_INSTALL,)))
    return tuple(_ways(service, identity, policy_api))


_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""Where an address means something only within one network (RFC 1918, 6598 and 4193)."""
_SIDE_EFFECTS = (
    "the side effects: the Service and its Ingresses show the hostname instead of the address, external-dns "
    "creates aliases for it, and traffic of nodes and pods goes out to the load balancer and comes back"
)
_DETOUR = "from Kubernetes 1.30 on, traffic of nodes and pods goes out to the load balancer and comes back"
_OUT_AND_BACK = (
    "without an agent, on CCE: let traffic of nodes and pods go out to the load balancer and come back; a "
    "dedicated one with a private address does not answer nodes and pods beside its own backends"
)
_INSTALL = (
    "on the nodes: install nodeagent, which needs nothing from the provider (docs/install.md, also for "
    "Cilium and Calico's eBPF)"
)
_IF_IT_CAN = (
    "without an agent: if the cloud's controller can set ipMode: Proxy, switch that on; not where nodes "
    "announce the address, as with Cilium or Calico (docs/fixes.md)"
)
_PLACEHOLDER = "lb.example.com"
_BY_POLICY = (
    "without an agent: let a policy in the API server set ipMode: Proxy (docs/fixes.md says when)",
    "$ nodeagent doctor --policy > policy.yaml",
)


def _ways(service: Service, identity: Identity, policy_api: str) -> Iterator[WayOut]:
    provider, tls = identity.provider, bool(identity.terminated)
    if provider is None:
        yield WayOut("ip-mode", (_IF_IT_CAN,))
    else:
        # Controllers set ipMode by themselves only where PROXY is on, and no annotation says otherwise.
        asked = provider.ip_mode_on_request.partition(": ")[0] in service.annotations
        if provider.ip_mode and (identity.sends or not tls) and not asked:
            yield WayOut("ip-mode", tuple(_update(service, provider)))
        if annotation := provider.ip_mode_on_request:
            sentence = f"without an agent: ask {provider.name}'s controller for ipMode: Proxy; {_DETOUR}"
            yield WayOut("ip-mode-on-request", _annotated(service, annotation, sentence))
        if provider.detour:
            yield WayOut("detour", _annotated(service, provider.detour, _OUT_AND_BACK))
        if provider.hostname:
            yield WayOut("hostname", _publish(service, provider.hostname))
    if policy_api:
        yield WayOut("policy", _BY_POLICY)
    if identity.proxy or not tls:
        ports = ", ".join(map(str, sorted(identity.versions)))
        only = f"only for port {ports}, since a relay can't replace TLS on the other: " if tls else ""
        yield WayOut("nodeagent", (f"{only}{_INSTALL}",))


def _update(service: Service, provider: Provider) -> Iterator[str]:
    yield (
        "without an agent: update the cloud's controller, which then sets ipMode: Proxy "
        f"({provider.ip_mode}); {_DETOUR}"
    )
    if provider.workload:
        yield f"$ kubectl -n kube-system get {provider.workload} -o wide"
        yield "update it (if it is not there, ask the provider to); then check that the status says Proxy:"
    else:
        yield "the provider runs it or documents its update; afterwards, check that the status says Proxy:"
    ref = service.ref
    path = "{.status.loadBalancer.ingress[*].ipMode}"
    yield f"$ kubectl -n {ref.namespace} get service {ref.name} -o jsonpath='{path}'"


def _publish(service: Service, hostname: str) -> tuple[str, ...]:
    sentence = "without an agent: publish a hostname instead of the address"
    if _PLACEHOLDER in hostname:
        public = [
            address
            for address in service.load_balancer_ips
            if not (address.is_link_local or any(address in network for network in _PRIVATE))
        ]
        addresses = ", ".join(map(str, public)) or "its address in the DNS that the nodes use"
        sentence += (
            f"; first create an address record with {addresses} for a hostname of your own, and use that "
            f"instead of {_PLACEHOLDER}"
        )
    return _annotated(service, hostname, sentence, _SIDE_EFFECTS)


def _annotated(service: Service, annotation: str, sentence: str, *then: str) -> tuple[str, ...]:
    """Return the steps; for an annotation that is set already, what the status does not show of it."""
    key, _, value = annotation.replace('"', "").partition(": ")
    current = service.annotations.get(key)
    if not current or value not in {current, _PLACEHOLDER}:
        return (sentence, annotate(service, annotation), *then)
    why = (
        f"annotation {key}={shown(current)} is set, but the status does not show its effect: the controller "
        "may be too old, or Events say why"
    )
    return (why, f"$ kubectl describe service -n {service.ref.namespace} {service.ref.name}")


def annotate(service: Service, annotation: str) -> str:
    """Return the command, ready to paste, for an annotation in YAML (`key: "value"`)."""
    key, _, value = annotation.partition(": ")
    pair = shlex.quote(f"{key}={value.strip(chr(34))}")
    return f"$ kubectl annotate service -n {service.ref.namespace} {service.ref.name} {pair}"
