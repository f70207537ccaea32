"""kube-proxy's rules in its nftables mode, in the shape of 1.36.

test_kube_proxy_models.py compares them with the real ones.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence

from tests.testbed.addresses import PLACES, SERVICE_CIDRS, Address, Network, within
from tests.testbed.services import ServicePort, ServiceRules

_HASH_LENGTH = 8
_BASE = """\
    chain filter-prerouting-pre-dnat {{
        type filter hook prerouting priority -110; policy accept;
        ct state new jump firewall-check
    }}
    chain filter-output-pre-dnat {{
        type filter hook output priority -110; policy accept;
        ct state new jump firewall-check
    }}
    chain filter-input {{
        type filter hook input priority filter; policy accept;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }}
    chain filter-forward {{
        type filter hook forward priority filter; policy accept;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }}
    chain filter-output {{
        type filter hook output priority filter; policy accept;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }}
    chain nat-prerouting {{
        type nat hook prerouting priority dstnat; policy accept;
        jump services
    }}
    chain nat-output {{
        type nat hook output priority -100; policy accept;
        jump services
    }}
    chain nat-postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        jump masquerading
    }}
    chain nodeport-endpoints-check {{
        {ip} daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }}
    chain service-endpoints-check {{
        {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services
    }}
    chain firewall-check {{
        {ip} daddr . meta l4proto . th dport vmap @firewall-ips
    }}
    chain services {{
        {ip} daddr @cluster-ips {ip} saddr != {pods} meta mark set meta mark | 0x4000
        {ip} daddr . meta l4proto . th dport vmap @service-ips
        {ip} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }}
    chain masquerading {{
        meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade fully-random
        ct status dnat {ip} saddr . {ip} daddr . meta l4proto . th dport @hairpin-connections \\
            masquerade fully-random
    }}
    chain cluster-ips-check {{
        {ip} daddr @cluster-ips reject
        {ip} daddr {services} drop
    }}
    chain reject-chain {{
        reject
    }}
"""


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
            _BASE.format(ip=ip, pods=cluster_cidr, services=service_cidr),
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
