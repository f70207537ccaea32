"""kube-proxy of one node: what it does to packets, without the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tests.testbed import kube_proxy_iptables, kube_proxy_nftables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.testbed.addresses import Address, Network
    from tests.testbed.namespaces import Host
    from tests.testbed.services import ServiceRules

KubeProxyKind: TypeAlias = Literal["nftables", "iptables-nft", "iptables-legacy"]
KUBE_PROXY_KINDS: tuple[KubeProxyKind, ...] = get_args(KubeProxyKind)


class KubeProxy:
    """One node's rules for Services, kept in the shape that kube-proxy of that kind gives them.

    Args:
        host: The node.
        kind: In which mode kube-proxy runs, and with which iptables.
        node_address: The address on which NodePorts answer.
        cluster_cidr: The addresses of all pods.
        services: The Services from the start.
    """

    def __init__(
        self,
        host: Host,
        kind: KubeProxyKind,
        node_address: Address,
        cluster_cidr: Network,
        services: Sequence[ServiceRules] = (),
    ) -> None:
        self.host = host
        self.kind: KubeProxyKind = kind
        self._node_address = node_address
        self._cluster_cidr = cluster_cidr
        self._services = {service.key: service for service in services}

    @property
    def services(self) -> tuple[ServiceRules, ...]:
        """The Services that it knows."""
        return tuple(self._services.values())

    def add(self, service: ServiceRules) -> None:
        """Take up a Service, or its new shape if one of that name is known, and sync."""
        self._services[service.key] = service
        self.sync()

    def remove(self, key: str) -> None:
        """Forget the Service namespace/name and sync; an unknown one is a KeyError."""
        del self._services[key]
        self.sync()

    def sync(self) -> None:
        """Write all rules anew, as kube-proxy does every now and then even when nothing changed."""
        if self.kind == "nftables":
            rules = kube_proxy_nftables.render(self.services, self._node_address, self._cluster_cidr)
            self.host.run(["nft", "-f", "-"], stdin=rules)
            return
        standing = self.host.run([f"{self.kind}-save", "-t", "nat"]).stdout
        rules = kube_proxy_iptables.render(self.services, self._cluster_cidr, standing)
        self.host.run([f"{self.kind}-restore", "--noflush"], stdin=rules)
        for chain, comment, target in kube_proxy_iptables.JUMPS:
            rule = [chain, "-m", "comment", "--comment", comment, "-j", target]
            if self.host.run([self.kind, "-t", "nat", "-C", *rule], check=False).returncode != 0:
                self.host.run([self.kind, "-t", "nat", "-I", *rule])
