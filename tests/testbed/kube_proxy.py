"""kube-proxy of one node: what it does to packets, without the program itself."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from tests.testbed import kube_proxy_iptables, kube_proxy_nftables
from tests.testbed.addresses import Address, Family, Network
from tests.testbed.namespaces import Host
from tests.testbed.services import ON_HOST, ServiceRules

KubeProxyKind: TypeAlias = Literal["nftables", "iptables-nft", "iptables-legacy"]
KUBE_PROXY_KINDS: tuple[KubeProxyKind, ...] = get_args(KubeProxyKind)


class KubeProxy:
    """One node's rules for Services, kept in the shape that kube-proxy of that kind gives them.

    Each family has rules of its own: a Service without a ClusterIP in a family has none in it, whatever
    addresses its load balancer has.
    """

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
        """Take up a Service, or its new shape if one of that name is known, and sync."""
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
        rules = kube_proxy_nftables.render(
            services, self._node_addresses[family], self._cluster_cidrs[family]
        )
        self.host.run([*ON_HOST, "nft", "-f", "-"], stdin=rules)

    def _write_iptables(self, family: Family, services: Sequence[ServiceRules]) -> None:
        iptables = self._iptables(family)
        standing = self.host.run([*ON_HOST, f"{iptables}-save", "-t", "nat"]).stdout
        rules = kube_proxy_iptables.render(services, self._cluster_cidrs[family], standing)
        self.host.run([*ON_HOST, f"{iptables}-restore", "--noflush"], stdin=rules)
        for chain, comment, target in kube_proxy_iptables.JUMPS:
            rule = [chain, "-m", "comment", "--comment", comment, "-j", target]
            if self.host.run([*ON_HOST, iptables, "-t", "nat", "-C", *rule], check=False).returncode != 0:
                self.host.run([*ON_HOST, iptables, "-t", "nat", "-I", *rule])

    def _iptables(self, family: Family) -> str:
        return self.kind if family == 4 else self.kind.replace("iptables", "ip6tables")
