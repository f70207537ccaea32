"""Metrics in which everything has happened once."""

from ipaddress import ip_address
from typing import get_args

from nodeagent.agent.reporting.metrics import Metrics
from nodeagent.components.component import ComponentName
from nodeagent.components.relay.haproxy_sockets import ServerState
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision, Verdict
from nodeagent.model.facts import DnsOutcome
from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.sources.kubernetes.informers import Coverage
from nodeagent.sources.kubernetes.resources import RESOURCE_NAMES

COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)
BLUE = ObjectRef("Service", "ingress", "blue")
GREEN = ObjectRef("Service", "ingress", "green")


def name(text: str, verdict: Verdict, code: str) -> NameDecision:
    """A decision about a name."""
    return NameDecision(text, ObjectRef("Ingress", "shop", "site"), BLUE, verdict, code, "because")


def server(load_balancer: ObjectRef, port: int, *, up: bool) -> ServerState:
    """What HAProxy reports about one listener's server."""
    bind = Endpoint(ip_address("169.254.66.7"), port)
    return ServerState(bind, load_balancer, up, "UP" if up else "DOWN", "", 7, 3)


def everything() -> Metrics:
    """Each method called once, for each value of its labels."""
    metrics = Metrics()
    for component in COMPONENTS:
        metrics.applied(component, 0.002)
        metrics.apply_failed(component, 0.3)
        metrics.repaired(component)
        metrics.conflict_began(component)
    for resource in RESOURCE_NAMES:
        metrics.objects_seen(resource, 1)
        metrics.watch_restarted(resource)
        metrics.relisted(resource)
        metrics.covered(resource, Coverage.WATCHED)
    metrics.event_applied(0.02)
    metrics.api_answered()
    metrics.api_read(4096)
    metrics.synced(1795251600.5)
    metrics.became_writer()
    metrics.config_reloaded()
    metrics.config_rejected()
    metrics.decided(
        Desired(
            load_balancers=(LoadBalancerDecision(BLUE, Verdict.SERVED, "Listed", "because"),),
            names=(name("shop.example.com", Verdict.REFUSED, "NotVerified"),),
            unreadable=(Unreadable("Service ingress/odd", "no name"),),
        )
    )
    for outcome in DnsOutcome:
        metrics.dns_asked(outcome)
    metrics.watch_relay(lambda: (server(BLUE, 443, up=True),))
    return metrics
