"""What forbids to redirect an address and port of a load balancer, whichever relay it would go to."""

from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef
from nodeagent.plan.publishing import Publications


def obstacle(match: Endpoint, ref: ObjectRef, published: Publications, facts: Facts) -> str | None:
    """Why traffic for `match` must not be redirected for the Service `ref`; None if nothing hinders.

    The API server's own endpoint is never redirected, whatever a Service's status says: a node must not be
    able to cut its kubelet off.
    """
    if match in facts.api_servers:
        return f"{match}: never redirected: it is the API server's own address and port"
    owner = published.owner(match)
    if owner != ref:
        return (
            f"{match}: left to {owner}, which is listed or older and publishes the same address and port; "
            "loadBalancers.services puts a Service first"
        )
    return None
