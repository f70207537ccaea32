"""kube-proxy of one node: what it does to packets, without the program itself, in the shape of 1.36.

test_kube_proxy_models.py compares the rules with the real ones; in iptables modes, those of the table nat.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from tests.testbed.addresses import PLACES, SERVICE_CIDRS, Address, Family, Network, bracketed, within
from tests.testbed.namespaces import Host
from tests.testbed.services import ON_HOST, ServicePort, ServiceRules

KubeProxyKind: TypeAlias = Literal["nftables", "iptables-nft", "iptables-legacy"]
KUBE_PROXY_KINDS: tuple[KubeProxyKind, ...] = get_args(KubeProxyKind)
_OF_A_SERVICE = re.compile(r"^:(KUBE-(?:SVC|EXT|SEP)-[A-Z0-9]+) ", re.MULTILINE)

JUMPS = (
    ("PREROUTING", "kubernetes service portals", "KUBE-SERVICES"),
    ("OUTPUT", "kubernetes service portals", "KUBE-SERVICES"),
    ("POSTROUTING", "kubernetes postrouting rules", "KUBE-POSTROUTING"),
)
"""The jumps (from, comment, to) that kube-proxy puts at the top of the kernel's own chains."""
_MARKS = Path(__file__).with_name("kube_proxy.rules").read_text("utf-8").splitlines()
_LAST = (
    '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule'
    ' in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS'
)
_BASE = Path(__file__).with_name("kube_proxy.nft").read_text("utf-8")
"""The chains that are the same whatever Services there are."""


class KubeProxy:
    """One node's rules for Services; one without a ClusterIP in a family has none in that family."""

    def __init__(
        self,
        host: Host,
        kind: KubeProxyKind,
        node_addresses: Sequence[Address],
        cluster_cidrs: Sequence[Network],
        services: Sequence[ServiceRules] = (),
    ) -> None:
        self.host = host
        self.kind: KubeProxyKind = kind
        self._node_addresses = {address.version: address for address in node_addresses}
        self._cluster_cidrs = {network.version: network for network in cluster_cidrs}
        self._services = {service.key: service for service in services}

    def add(self, service: ServiceRules) -> None:
        self._services[service.key] = service
        self.sync()

    def remove(self, key: str) -> None:
        """Forget the Service namespace/name and sync; an unknown one is a KeyError."""
        del self._services[key]
        self.sync()

    def sync(self) -> None:
        """Write all rules again, as kube-proxy does every now and then even when nothing changed."""
        for family in self._node_addresses:
            found = [service.within((family,)) for service in self._services.values()]
            services = [service for service in found if service.cluster_ips]
            if self.kind == "nftables":
                self._write_nftables(family, services)
            else:
                self._write_iptables(family, services)

    def _write_nftables(self, family: Family, services: Sequence[ServiceRules]) -> None:
        rules = nftables_rules(services, self._node_addresses[family], self._cluster_cidrs[family])
        self.host.run([*ON_HOST, "nft", "-f", "-"], stdin=rules)

    def _write_iptables(self, family: Family, services: Sequence[ServiceRules]) -> None:
        iptables = self._program(family)
        standing = self.host.run([*ON_HOST, f"{iptables}-save", "-t", "nat"]).stdout
        rules = iptables_rules(services, self._cluster_cidrs[family], standing)
        self.host.run([*ON_HOST, f"{iptables}-restore", "--noflush"], stdin=rules)
        for chain, comment, target in JUMPS:
            rule = [chain, "-m", "comment", "--comment", comment, "-j", target]
            if self.host.run([*ON_HOST, iptables, "-t", "nat", "-C", *rule], check=False).returncode != 0:
                self.host.run([*ON_HOST, iptables, "-t", "nat", "-I", *rule])

    def _program(self, family: Family) -> str:
        return self.kind if family == 4 else self.kind.replace("iptables", "ip6tables")


def iptables_rules(services: Sequence[ServiceRules], cluster_cidr: Network, standing: str) -> str:
    """Write the whole nat table of a family as one restore that leaves other people's chains alone.

    Sources in `cluster_cidr` reach a ClusterIP with their own address. `standing` is what `iptables-save -t
    nat` says, so that chains of deleted Services are removed too.
    """
    chains = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"]
    rules, portals, node_ports = [*_MARKS], list[str](), list[str]()
    for service, port in ((one, port) for one in services for port in one.ports):
        name = f"{service.key}:{port.name}"
        digest = _digest(16, f"{name}tcp")
        inside, outside = f"KUBE-SVC-{digest}", f"KUBE-EXT-{digest}"
        comment, to_port = f'-m comment --comment "{name}', f"-m tcp --dport {port.port} -j"
        chains.append(inside)
        for address in service.cluster_ips:
            matched = f'-d {_alone(address)} -p tcp {comment} cluster IP" {to_port}'
            portals.append(f"-A KUBE-SERVICES {matched} {inside}")
            rules.append(f"-A {inside} ! -s {cluster_cidr} {matched} KUBE-MARK-MASQ")
        for address in service.load_balancer_ips:
            matched = f'-d {_alone(address)} -p tcp {comment} loadbalancer IP" {to_port}'
            portals.append(f"-A KUBE-SERVICES {matched} {outside}")
        if port.node_port:
            matched = f'-p tcp {comment}" -m tcp --dport {port.node_port}'
            node_ports.append(f"-A KUBE-NODEPORTS {matched} -j {outside}")
        if service.load_balancer_ips or port.node_port:
            chains.append(outside)
            why = f"masquerade traffic for {name} external destinations"
            rules += [
                f'-A {outside} -m comment --comment "{why}" -j KUBE-MARK-MASQ',
                f"-A {outside} -j {inside}",
            ]
        for number, pod in enumerate(service.endpoints):
            target = f"{bracketed(pod)}:{port.target_port}"
            chains.append(chain := f"KUBE-SEP-{_digest(16, f'{name}tcp{target}')}")
            left = len(service.endpoints) - number
            chance = f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""
            rules += [
                f'-A {inside} {comment} -> {target}" {chance}-j {chain}',
                f'-A {chain} -s {_alone(pod)} {comment}" -j KUBE-MARK-MASQ',
                f'-A {chain} -p tcp {comment}" -m tcp -j DNAT --to-destination {target}',
            ]
    # As in kube-proxy, NodePorts come last: they match any local address.
    last = _LAST.replace(" -m comment", " ! -d ::1/128 -m comment", 1) if cluster_cidr.version == 6 else _LAST
    gone = sorted(set(_OF_A_SERVICE.findall(standing)) - set(chains))
    declared = [f":{chain} - [0:0]" for chain in (*chains, *gone)]
    removed = [f"-X {chain}" for chain in gone]
    return "\n".join(["*nat", *declared, *rules, *portals, *node_ports, last, *removed, "COMMIT", ""])


def _alone(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


def nftables_rules(services: Sequence[ServiceRules], node_address: Address, cluster_cidr: Network) -> str:
    """Write the whole table of a family as one transaction that replaces whatever table existed before.

    NodePorts answer on `node_address`, by which the node's own pods are known.
    """
    family = node_address.version
    ip, kind = ("ip", "ipv4_addr") if family == 4 else ("ip6", "ipv6_addr")
    (service_cidr,) = within(SERVICE_CIDRS, (family,))
    own_pods = _pods_of(node_address)
    hairpins, ips, node_ports, chains = list[str](), list[str](), list[str](), list[str]()
    for service, port in ((one, port) for one in services for port in one.ports):
        readable = f"{service.key}/tcp/{port.name}"
        name = f"{_digest(8, readable)}-{readable}"
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
    to_pods = f"meta l4proto tcp dnat {ip} to numgen random mod {len(pods)} map {{ {targets} }}"
    yield f"    chain service-{name} {{ {to_pods if pods else ''}\n    }}"
    if service.load_balancer_ips or port.node_port:
        yield f"    chain external-{name} {{\n        meta mark set meta mark | 0x4000"
        yield f"        goto service-{name}\n    }}"


def _pods_of(node_address: Address) -> set[Address]:
    nodes = {place.host for place in PLACES if node_address in [own.ip for own in place.addresses]}
    return {own.ip for place in PLACES if place.behind in nodes for own in place.addresses}


def _digest(length: int, text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode("ascii")).digest()).decode("ascii")[:length]
