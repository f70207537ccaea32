"""Metrics in which everything has happened once."""

from ipaddress import ip_address
from typing import get_args

from nodeagent.agent.reporter import PARTS
from nodeagent.components.component import ComponentName
from nodeagent.components.relay.haproxy_sockets import ServerState
from nodeagent.model.addresses import Endpoint
from nodeagent.model.decisions import Conclusion, DecisionStatus, LoadBalancerDecision, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.observe.metrics import AgentMetrics
from nodeagent.observe.status import RelayStatus, Status
from nodeagent.sources.kubernetes.cluster import ResourceState

COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)
BLUE = ObjectRef("Service", "ingress", "blue")
GREEN = ObjectRef("Service", "ingress", "green")


def name(  # noqa: PLR0913 - each test names the one or two that matter to it
    text: str,
    status: DecisionStatus = DecisionStatus.REFUSED,
    code: str = "NotVerified",
    *,
    namespace: str = "shop",
    reason: str = "because",
    stable: str = "",
) -> NameDecision:
    ingress = ObjectRef("Ingress", namespace, "site")
    return NameDecision(text, ingress, BLUE, Conclusion(status, code, reason, stable))


def server(load_balancer: ObjectRef, port: int, *, up: bool) -> ServerState:
    bind = Endpoint(ip_address("169.254.66.7"), port)
    return ServerState(bind, load_balancer, up, "UP" if up else "DOWN", "", 7, 3)


def new_metrics() -> AgentMetrics:
    return AgentMetrics(Status(PARTS))


def everything() -> AgentMetrics:
    """A plan, and a relay that answers; all other series exist from the start."""
    metrics = new_metrics()
    metrics.resources = lambda: [ResourceState("services", synced=True, objects=3)]
    metrics.status.desired = Desired(
        load_balancers=(LoadBalancerDecision(BLUE, Conclusion(DecisionStatus.SERVED, "Listed", "because")),),
        names=(name("shop.example.com", DecisionStatus.REFUSED, "NotVerified"),),
        unreadable=(Unreadable("Service ingress/odd", "no name"),),
    )
    metrics.status.relay = RelayStatus("nodeagent-relay-a", "3.0.11")
    metrics.statistics = lambda: (server(BLUE, 443, up=True),)
    return metrics
