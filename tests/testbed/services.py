"""What kube-proxy knows of a Service, and by which programs it and the load balancer act."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.testbed import addresses
from tests.testbed.addresses import Address, Family, within

ON_HOST = tuple(os.environ.get("ON_HOST", "").split())
"""What comes before programs that are not those of nodeagent's image in a cluster: kube-proxy's and the load
balancer's. Empty, unless they are to be others (tests/testbed/kernels/on-host)."""


@dataclass(frozen=True)
class ServicePort:
    """One TCP port of a Service, and the port of its pods; `node_port` is 0 where it has none."""

    name: str
    port: int
    node_port: int
    target_port: int


@dataclass(frozen=True)
class ServiceRules:
    """One Service and its ready pods; `load_balancer_ips` are those that kube-proxy short-circuits.

    Each of its addresses says its own family, as in the API.
    """

    namespace: str
    name: str
    cluster_ips: tuple[Address, ...]
    load_balancer_ips: tuple[Address, ...]
    ports: tuple[ServicePort, ...]
    endpoints: tuple[Address, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def within(self, families: Iterable[Family]) -> "ServiceRules":
        wanted = tuple(families)
        return replace(
            self,
            cluster_ips=within(self.cluster_ips, wanted),
            load_balancer_ips=within(self.load_balancer_ips, wanted),
            endpoints=within(self.endpoints, wanted),
        )


INGRESS_SERVICE = ServiceRules(
    namespace="ingress-nginx",
    name="ingress-nginx-controller",
    cluster_ips=addresses.INGRESS_CLUSTER_IPS,
    load_balancer_ips=addresses.EVERY_LOAD_BALANCER_IP,
    ports=(
        ServicePort("http", 80, 30080, 80),
        ServicePort("https", 443, 30443, 443),
        ServicePort("extra", 8443, 30843, 8443),
    ),
    endpoints=(addresses.POD1, addresses.POD2, addresses.POD1_6, addresses.POD2_6),
)
"""The ingress controller's Service; manifests/ describes the same one to nodeagent."""
