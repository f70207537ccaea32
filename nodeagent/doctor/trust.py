"""Whose PROXY header ingress controllers have to believe, where they believe not everyone's. Pure."""

from nodeagent.doctor.codes import Code
from nodeagent.doctor.findings import Finding
from nodeagent.model.running import NodeAddresses


def trust_finding(nodes: NodeAddresses) -> Finding:
    """The list to paste: every node's own addresses as single ones, and never a range.

    A range of pods would let every pod claim any client address (docs/controllers.md).
    """
    listed = ",".join(f"{address}/{address.max_prefixlen}" for address in nodes.addresses)
    more = f"{nodes.nodes_left} more nodes are missing here: kubectl get nodes -o wide, INTERNAL-IP"
    return Finding(
        Code.TrustTheNodes,
        "ingress controllers",
        "if they believe the PROXY header only from certain addresses, those must include the nodes'",
        (
            f'proxy-real-ip-cidr: "{listed}"',
            *([more] if nodes.nodes_left else []),
            (
                "add the load balancer's own addresses, as the nodes see them: the cluster has no record of "
                "those"
            ),
            "do not add pod ranges or 0.0.0.0/0: anyone in them could claim any client address",
        ),
    )
