"""Values that flow through nodeagent: objects of the cluster, facts of the node, the desired state.

All are frozen, hashable where they go into sets, and hold `ipaddress` objects rather than text.
"""
