"""nodeagent keeps a Kubernetes node's own traffic to PROXY-protocol load balancers working."""

__version__ = "0.1.0"
