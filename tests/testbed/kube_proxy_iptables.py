"""kube-proxy's rules in its iptables mode, in the shape of 1.36: KUBE-SERVICES, KUBE-SVC-* and so on.

Those of its nat table: no other translates. test_kube_proxy_models.py compares them with the real ones.
"""

import base64
import hashlib
import re
from collections.abc import Sequence

from tests.testbed.addresses import Address, Network, bracketed
from tests.testbed.services import ServicePort, ServiceRules

_HASH_LENGTH = 16
_OF_A_SERVICE = re.compile(r"^:(KUBE-(?:SVC|EXT|SEP)-[A-Z0-9]+) ", re.MULTILINE)

JUMPS = (
    ("PREROUTING", "kubernetes service portals", "KUBE-SERVICES"),
    ("OUTPUT", "kubernetes service portals", "KUBE-SERVICES"),
    ("POSTROUTING", "kubernetes postrouting rules", "KUBE-POSTROUTING"),
)
"""The jumps (from, comment, to) that kube-proxy puts at the top of the kernel's own chains."""


def render(services: Sequence[ServiceRules], cluster_cidr: Network, standing: str) -> str:
    """Write the whole nat table of kube-proxy as one restore that leaves other people's chains alone.

    Args:
        services: Every Service, with the addresses of one family: that of `cluster_cidr`.
        cluster_cidr: Sources within it reach a ClusterIP with their own address.
        standing: What `iptables-save -t nat` says, so that chains of deleted Services are removed too.
    """
    chains = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"]
    portals: list[str] = []
    node_ports: list[str] = []
    rules = [
        "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
        "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
        "-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
        (
            '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT"'
            " -j MASQUERADE --random-fully"
        ),
    ]
    for service in services:
        for port in service.ports:
            names = _Names(service, port)
            chains += [names.service, *names.endpoints]
            if names.outside:
                chains.append(names.external)
            portals += _portals(service, port, names)
            if port.node_port:
                node_ports.append(
                    f'-A KUBE-NODEPORTS -p tcp -m comment --comment "{names.readable}"'
                    f" -m tcp --dport {port.node_port} -j {names.external}"
                )
            rules += _service_rules(service, port, names, cluster_cidr)
    # As in kube-proxy, NodePorts come last: they match any local address.
    last = (
        '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports;'
        ' NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS'
    )
    if cluster_cidr.version == 6:
        last = last.replace(" -m comment", " ! -d ::1/128 -m comment", 1)
    gone = sorted(set(_OF_A_SERVICE.findall(standing)) - set(chains))
    return "\n".join(
        [
            "*nat",
            *(f":{chain} - [0:0]" for chain in (*chains, *gone)),
            *rules,
            *portals,
            *node_ports,
            last,
            *(f"-X {chain}" for chain in gone),
            "COMMIT",
            "",
        ]
    )


class _Names:
    """The names of one port's chains, made from a hash as kube-proxy makes them."""

    def __init__(self, service: ServiceRules, port: ServicePort) -> None:
        self.readable = f"{service.key}:{port.name}"
        digest = _digest(f"{self.readable}tcp")
        self.service = f"KUBE-SVC-{digest}"
        self.external = f"KUBE-EXT-{digest}"
        self.outside = bool(service.load_balancer_ips or port.node_port)
        self.endpoints = [
            "KUBE-SEP-" + _digest(f"{self.readable}tcp{_with_port(endpoint, port)}")
            for endpoint in service.endpoints
        ]


def _portals(service: ServiceRules, port: ServicePort, names: _Names) -> list[str]:
    def portal(address: Address, kind: str, target: str) -> str:
        return (
            f'-A KUBE-SERVICES -d {_alone(address)} -p tcp -m comment --comment "{names.readable} {kind}"'
            f" -m tcp --dport {port.port} -j {target}"
        )

    return [
        *(portal(address, "cluster IP", names.service) for address in service.cluster_ips),
        *(portal(address, "loadbalancer IP", names.external) for address in service.load_balancer_ips),
    ]


def _service_rules(
    service: ServiceRules, port: ServicePort, names: _Names, cluster_cidr: Network
) -> list[str]:
    rules = [
        f"-A {names.service} ! -s {cluster_cidr} -d {_alone(address)} -p tcp -m comment"
        f' --comment "{names.readable} cluster IP" -m tcp --dport {port.port} -j KUBE-MARK-MASQ'
        for address in service.cluster_ips
    ]
    if names.outside:
        rules += [
            (
                f'-A {names.external} -m comment --comment "masquerade traffic for {names.readable}'
                ' external destinations" -j KUBE-MARK-MASQ'
            ),
            f"-A {names.external} -j {names.service}",
        ]
    for number, (endpoint, chain) in enumerate(zip(service.endpoints, names.endpoints, strict=True)):
        left = len(service.endpoints) - number
        chance = f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""
        comment = f'-m comment --comment "{names.readable}'
        target = _with_port(endpoint, port)
        rules += [
            f'-A {names.service} {comment} -> {target}" {chance}-j {chain}',
            f'-A {chain} -s {_alone(endpoint)} {comment}" -j KUBE-MARK-MASQ',
            f'-A {chain} -p tcp {comment}" -m tcp -j DNAT --to-destination {target}',
        ]
    return rules


def _alone(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


def _with_port(endpoint: Address, port: ServicePort) -> str:
    return f"{bracketed(endpoint)}:{port.target_port}"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("ascii")).digest()
    return base64.b32encode(digest).decode("ascii")[:_HASH_LENGTH]
