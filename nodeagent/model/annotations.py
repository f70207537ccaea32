"""The annotations that decide. The domain of nodeagent's own stands here and nowhere else."""

from collections.abc import Mapping
from types import MappingProxyType

_DOMAIN = "nodeagent.io"

EXCLUDE = f"{_DOMAIN}/exclude"
"""`"true"` on a Service, an Ingress, a Gateway or a Route: it is left alone."""

PROXY_PROTOCOL = f"{_DOMAIN}/proxy-protocol"
"""`v1`, `v2` or `off` on a Service: what its load balancer sends, whichever provider it is of."""

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
"""Which controller serves an Ingress: the way of before spec.ingressClassName (Kubernetes 1.18)."""

NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
"""One empty mapping for all: of ten thousand Routes hardly any has an annotation that decides."""
