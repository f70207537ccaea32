"""Whether `ipMode: Proxy` is believed: a data plane that does not know it short-circuits the address anyway.

kube-proxy honors it since Kubernetes 1.30 (KEP-1860); others came later, or don't (docs/decisions/0012).
"""

from typing import Literal

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import Snapshot
from nodeagent.plan.detection.decision import detect


class IPModePolicy(Struct, frozen=True):
    """`loadBalancers.ipMode`, and the addresses that this node's own rules were seen to short-circuit."""

    choice: Literal["auto", "honor", "ignore"]
    short_circuited: frozenset[IPAddress]

    def disbelief(self, address: IPAddress) -> str | None:
        """Why `ipMode: Proxy` is not believed of this address; None where it is."""
        if self.choice == "ignore":
            return "loadBalancers.ipMode is ignore"
        if self.choice == "auto" and address in self.short_circuited:
            return "this node's own rules short-circuit it nevertheless"
        return None


def doubtful_addresses(snapshot: Snapshot, config: Config) -> frozenset[IPAddress]:
    """The addresses of which only this node's own rules can tell whether they are short-circuited.

    They are those in ipMode Proxy of load balancers that send PROXY; without any, no rules need to be read.
    """
    if config.load_balancers.ip_mode != "auto":
        return frozenset()
    return frozenset(
        point.ip
        for service in snapshot.services
        if any(point.ip_mode == "Proxy" for point in service.points)
        if detect(service, config.load_balancers, snapshot.node, snapshot.config_maps).proxy
        for point in service.points
        if point.ip is not None and point.ip_mode == "Proxy"
    )
