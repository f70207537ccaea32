"""What forbids to redirect an address and port of a load balancer, whichever relay it would go to."""

from collections.abc import Mapping

from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef

NODE_PORTS: Mapping[int, str] = {
    **dict.fromkeys((10248, 10250, 10255), "kubelet"),
    **dict.fromkeys((10249, 10256), "kube-proxy"),
    **dict.fromkeys((2379, 2380, 2381), "etcd"),
    6443: "API server",
    10257: "controller manager",
    10259: "scheduler",
}
"""Ports that Kubernetes' own programs bind on every address of the node (kubernetes.io/docs, "Ports and
Protocols"). Where a relay has one of them first, the program does not start (bind(2): EADDRINUSE), and
whoever may create a Service could bring that about. Other programs' ports are told from what listens."""


def obstacle(
    match: Endpoint, ref: ObjectRef, claims: Mapping[Endpoint, ObjectRef], facts: Facts
) -> str | None:
    """Why traffic for `match` must not be redirected for the Service `ref`; None if nothing hinders.

    `claims` maps each address and port to the oldest Service that has it. The API server's own endpoint is
    never redirected, whatever a Service's status says: a node must not be able to cut its kubelet off.
    """
    if match in facts.api_servers:
        return f"{match}: never redirected: it is the API server's own address and port"
    if claims[match] != ref:
        return f"{match}: left to {claims[match]}, the older Service with the same address and port"
    return None
