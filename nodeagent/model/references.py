"""How objects of the cluster name each other, and how they name load balancers."""

from dataclasses import dataclass

from nodeagent.model.addresses import IPAddress


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """Names one object of the cluster, as a person would look it up."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    @property
    def path(self) -> str:
        """`namespace/name`, or `name` alone for an object without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class LoadBalancerPoint:
    """One entry of `status.loadBalancer.ingress`: an address, a hostname, or both.

    `ip_mode` is "VIP", "Proxy", or None where the provider says nothing (which means VIP: KEP-1860).
    """

    ip: IPAddress | None
    hostname: str | None = None
    ip_mode: str | None = None
