"""The annotations that are nodeagent's own. Their domain stands here and nowhere else."""

_DOMAIN = "nodeagent.io"

EXCLUDE = f"{_DOMAIN}/exclude"
"""`"true"` on a Service, an Ingress, a Gateway or a Route: it is left alone."""

PROXY_PROTOCOL = f"{_DOMAIN}/proxy-protocol"
"""`v1`, `v2` or `off` on a Service: what its load balancer sends, whichever provider it is of."""
