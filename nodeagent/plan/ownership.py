"""Which load balancer an Ingress belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.model.desired import Verdict
from nodeagent.model.objects import Ingress
from nodeagent.plan.load_balancers import LoadBalancerPlan


@dataclass(frozen=True, slots=True)
class Ownership:
    """The load balancer, or None and why there is none."""

    load_balancer: LoadBalancerPlan | None
    code: str = ""
    reason: str = ""


def find_owner(ingress: Ingress, load_balancers: Sequence[LoadBalancerPlan]) -> Ownership:
    """By the address in the Ingress's own status; with an empty status, the only PROXY load balancer."""
    reported = {str(point.ip) for point in ingress.points if point.ip is not None}
    reported |= {point.hostname for point in ingress.points if point.hostname}
    if reported:
        return _by_status(reported, load_balancers)
    if ingress.problems:
        return Ownership(None, "BadStatus", "; ".join(ingress.problems))
    proxies = [plan for plan in load_balancers if plan.proxy]
    if len(proxies) == 1:
        return Ownership(proxies[0])
    if not proxies:
        return Ownership(None, "NoProxyLoadBalancer", "no load balancer of this cluster sends PROXY")
    return Ownership(
        None,
        "AmbiguousLoadBalancer",
        f"its status.loadBalancer is empty and {len(proxies)} load balancers send PROXY: can't tell whose",
    )


def _by_status(reported: set[str], load_balancers: Sequence[LoadBalancerPlan]) -> Ownership:
    matching = [
        plan
        for plan in load_balancers
        if any(str(point.ip) in reported or point.hostname in reported for point in plan.service.points)
    ]
    # Where two Services share an address, the one that the relay serves is meant.
    matching.sort(key=lambda plan: plan.decision.verdict is not Verdict.SERVED)
    if matching:
        return Ownership(matching[0])
    return Ownership(
        None,
        "UnknownLoadBalancer",
        f"its status.loadBalancer names {', '.join(sorted(reported))}: no LoadBalancer Service has that",
    )
