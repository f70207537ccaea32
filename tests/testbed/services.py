"""What kube-proxy knows of a Service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.testbed.addresses import INGRESS_CLUSTER_IP, LOAD_BALANCER_IPS, POD1, POD2

if TYPE_CHECKING:
    from tests.testbed.addresses import Address


@dataclass(frozen=True)
class ServicePort:
    """One TCP port of a Service, and the port of its pods; `node_port` is 0 where it has none."""

    name: str
    port: int
    node_port: int
    target_port: int


@dataclass(frozen=True)
class ServiceRules:
    """One Service and its ready pods; `load_balancer_ips` are those that kube-proxy short-circuits."""

    namespace: str
    name: str
    cluster_ip: Address
    load_balancer_ips: tuple[Address, ...]
    ports: tuple[ServicePort, ...]
    endpoints: tuple[Address, ...]

    @property
    def key(self) -> str:
        """The Service as Kubernetes writes it: namespace/name."""
        return f"{self.namespace}/{self.name}"


INGRESS_SERVICE = ServiceRules(
    namespace="ingress-nginx",
    name="ingress-nginx-controller",
    cluster_ip=INGRESS_CLUSTER_IP,
    load_balancer_ips=LOAD_BALANCER_IPS,
    ports=(
        ServicePort("http", 80, 30080, 80),
        ServicePort("https", 443, 30443, 443),
        ServicePort("extra", 8443, 30843, 8443),
    ),
    endpoints=(POD1, POD2),
)
"""The ingress controller's Service; manifests/ describes the same one to nodeagent."""
