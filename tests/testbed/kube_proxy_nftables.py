"""kube-proxy's rules in its nftables mode, in the shape of 1.36.

test_kube_proxy_models.py compares them with the real ones.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.testbed.addresses import PLACES, SERVICE_CIDRS, Address, Network, within
from tests.testbed.services import ServicePort, ServiceRules

_HASH_LENGTH = 8
_BASE = Path(__file__).with_name("kube_proxy.nft").read_text("utf-8")
"""The chains that are the same whatever Services there are."""


def render(services: Sequence[ServiceRules], node_address: Address, cluster_cidr: Network) -> str:
    """Write the whole table of a family as one transaction that replaces whatever table existed before.

    Sources in `cluster_cidr` reach a ClusterIP with their own address. NodePorts answer on `node_address`,
    by which the node's own pods are known.
    """
    family = node_address.version
    ip, kind = ("ip", "ipv4_addr") if family == 4 else ("ip6", "ipv6_addr")
    (service_cidr,) = within(SERVICE_CIDRS, (family,))
    own_pods = _pods_of(node_address)
    hairpins: list[str] = []
    ips: list[str] = []
    node_ports: list[str] = []
    chains: list[str] = []
    for service in services:
        for port in service.ports:
            name = _name(service, port)
            to_port = f"tcp . {port.port} : goto"
            ips += [f"{address} . {to_port} service-{name}" for address in service.cluster_ips]
            ips += [f"{address} . {to_port} external-{name}" for address in service.load_balancer_ips]
            if port.node_port:
                node_ports.append(f"tcp . {port.node_port} : goto external-{name}")
            own = [pod for pod in service.endpoints if pod in own_pods]
            hairpins += [f"{pod} . {pod} . tcp . {port.target_port}" for pod in own]
            chains += _service_chains(ip, service, port, name)
    destination = f"{kind} . inet_proto . inet_service"
    return "\n".join(
        [
            f"table {ip} kube-proxy",
            f"delete table {ip} kube-proxy",
            f"table {ip} kube-proxy {{",
            '    comment "rules for kube-proxy"',
            *_elements("set hairpin-connections", f"{kind} . {destination}", hairpins),
            *_elements("set cluster-ips", kind, [str(ip) for one in services for ip in one.cluster_ips]),
            *_elements("set nodeport-ips", kind, [str(node_address)]),
            *_elements("map no-endpoint-services", f"{destination} : verdict", ()),
            *_elements("map no-endpoint-nodeports", "inet_proto . inet_service : verdict", ()),
            *_elements("map firewall-ips", f"{destination} : verdict", ()),
            *_elements("map service-ips", f"{destination} : verdict", ips),
            *_elements("map service-nodeports", "inet_proto . inet_service : verdict", node_ports),
            _BASE.replace("FAMILY", ip)
            .replace("POD_CIDR", str(cluster_cidr))
            .replace("SERVICE_CIDR", str(service_cidr)),
            *chains,
            "}",
            "",
        ]
    )


def _elements(what: str, kind: str, elements: Sequence[str]) -> Iterator[str]:
    yield f"    {what} {{"
    yield f"        type {kind}"
    if elements:
        yield f"        elements = {{ {', '.join(elements)} }}"
    yield "    }"


def _service_chains(ip: str, service: ServiceRules, port: ServicePort, name: str) -> Iterator[str]:
    pods = service.endpoints
    targets = ", ".join(f"{number} : {pod} . {port.target_port}" for number, pod in enumerate(pods))
    yield f"    chain service-{name} {{"
    if pods:
        yield f"        meta l4proto tcp dnat {ip} to numgen random mod {len(pods)} map {{ {targets} }}"
    yield "    }"
    if not service.load_balancer_ips and not port.node_port:
        return
    yield f"    chain external-{name} {{"
    yield "        meta mark set meta mark | 0x4000"
    yield f"        goto service-{name}"
    yield "    }"


def _pods_of(node_address: Address) -> set[Address]:
    nodes = {place.host for place in PLACES if node_address in [own.ip for own in place.addresses]}
    return {own.ip for place in PLACES if place.behind in nodes for own in place.addresses}


def _name(service: ServiceRules, port: ServicePort) -> str:
    readable = f"{service.key}/tcp/{port.name}"
    digest = base64.b32encode(hashlib.sha256(readable.encode("ascii")).digest()).decode("ascii")
    return f"{digest[:_HASH_LENGTH]}-{readable}"
