"""kube-proxy's rules in its nftables mode, in its own shape: names, priorities, maps and marks."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from tests.testbed.addresses import bracketed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.testbed.addresses import Address, Network
    from tests.testbed.services import ServicePort, ServiceRules

_HASH_LENGTH = 8
_BASE = """\
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
    chain services {{
        {ip} daddr . meta l4proto . th dport vmap @service-ips
        {ip} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }}
    chain mark-for-masquerade {{
        meta mark set meta mark | 0x4000
    }}
    chain masquerading {{
        meta mark & 0x4000 == 0 return
        meta mark set meta mark ^ 0x4000
        masquerade fully-random
    }}
    set nodeport-ips {{
        type {address_type}
        elements = {{ {node_address} }}
    }}
"""


def render(services: Sequence[ServiceRules], node_address: Address, cluster_cidr: Network) -> str:
    """Write the whole table of a family as one transaction that replaces whatever table existed before.

    Args:
        services: Every Service, with the addresses of that family.
        node_address: The address on which NodePorts answer.
        cluster_cidr: Sources within it reach a ClusterIP with their own address.

    Returns:
        Text for `nft -f -`.
    """
    ip, address_type = ("ip", "ipv4_addr") if node_address.version == 4 else ("ip6", "ipv6_addr")
    ips: list[str] = []
    node_ports: list[str] = []
    chains: list[str] = []
    for service in services:
        for port in service.ports:
            name = _chain("", service, port)
            ips += [f"{address} . tcp . {port.port} : goto service-{name}" for address in service.cluster_ips]
            ips += [
                f"{address} . tcp . {port.port} : goto external-{name}"
                for address in service.load_balancer_ips
            ]
            if port.node_port:
                node_ports.append(f"tcp . {port.node_port} : goto external-{name}")
            chains += _service_chains(ip, service, port, cluster_cidr)
    return "\n".join(
        [
            f"table {ip} kube-proxy",
            f"delete table {ip} kube-proxy",
            f"table {ip} kube-proxy {{",
            '    comment "rules for kube-proxy"',
            _BASE.format(ip=ip, address_type=address_type, node_address=node_address),
            *chains,
            *_map("service-ips", f"{address_type} . inet_proto . inet_service", ips),
            *_map("service-nodeports", "inet_proto . inet_service", node_ports),
            "}",
            "",
        ]
    )


def _map(name: str, key: str, elements: Sequence[str]) -> list[str]:
    lines = [f"    map {name} {{", f"        type {key} : verdict"]
    if elements:
        lines.append(f"        elements = {{ {', '.join(elements)} }}")
    return [*lines, "    }"]


def _service_chains(ip: str, service: ServiceRules, port: ServicePort, cluster_cidr: Network) -> list[str]:
    name = _chain("", service, port)
    lines: list[str] = []
    targets = []
    for number, endpoint in enumerate(service.endpoints):
        # A name holds no colon.
        escaped = str(endpoint).replace(":", ".")
        target = "endpoint-" + _chain(f"__{escaped}/{port.target_port}", service, port)
        targets.append(f"{number} : goto {target}")
        lines += [
            f"    chain {target} {{",
            f"        {ip} saddr {endpoint} jump mark-for-masquerade",
            f"        meta l4proto tcp dnat to {bracketed(endpoint)}:{port.target_port}",
            "    }",
        ]
    lines += [
        f"    chain service-{name} {{",
        *(
            f"        {ip} daddr {address} tcp dport {port.port}"
            f" {ip} saddr != {cluster_cidr} jump mark-for-masquerade"
            for address in service.cluster_ips
        ),
    ]
    if targets:
        lines.append(f"        numgen random mod {len(targets)} vmap {{ {', '.join(targets)} }}")
    lines += [
        "    }",
        f"    chain external-{name} {{",
        "        jump mark-for-masquerade",
        f"        goto service-{name}",
        "    }",
    ]
    return lines


def _chain(suffix: str, service: ServiceRules, port: ServicePort) -> str:
    readable = f"{service.key}/tcp/{port.name}{suffix}"
    digest = base64.b32encode(hashlib.sha256(readable.encode("ascii")).digest()).decode("ascii")
    return f"{digest[:_HASH_LENGTH]}-{readable}"
