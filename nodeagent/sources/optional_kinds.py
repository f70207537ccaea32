"""Kinds that a cluster may or may not have: of which API group, in which versions, and how they are read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nodeagent.model.objects import GATEWAY_API
from nodeagent.sources.controller_apis import CONTROLLER_KINDS
from nodeagent.sources.decoding import decode_service_range
from nodeagent.sources.gateway_decoding import (
    EXPERIMENTAL_GROUP,
    decode_experimental_listener_set,
    decode_gateway,
    decode_grpc_route,
    decode_http_route,
    decode_listener_set,
    decode_tls_route,
)


@dataclass(frozen=True, slots=True)
class OptionalKind:
    """One kind: served by a CustomResourceDefinition, or by Kubernetes since some version.

    Attributes:
        group: its API group.
        versions: those that can be read, the best first.
        plural: its name in paths.
        kind: its name in objects.
        decode: one object to its value; None for one that is none of ours; raises DecodingError.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    decode: Callable[[bytes | dict[str, Any]], object | None]

    @property
    def name(self) -> str:
        """What status and metrics call it, and what `kubectl get` takes: `httproutes.gateway...`."""
        return f"{self.plural}.{self.group}"


GATEWAYS = OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "gateways", "Gateway", decode_gateway)

OPTIONAL_KINDS: tuple[OptionalKind, ...] = (
    GATEWAYS,
    OptionalKind(GATEWAY_API, ("v1",), "listenersets", "ListenerSet", decode_listener_set),
    OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "httproutes", "HTTPRoute", decode_http_route),
    OptionalKind(GATEWAY_API, ("v1", "v1alpha2"), "grpcroutes", "GRPCRoute", decode_grpc_route),
    OptionalKind(GATEWAY_API, ("v1", "v1alpha3", "v1alpha2"), "tlsroutes", "TLSRoute", decode_tls_route),
    OptionalKind(
        EXPERIMENTAL_GROUP,
        ("v1alpha1",),
        "xlistenersets",
        "XListenerSet",
        decode_experimental_listener_set,
    ),
    OptionalKind("networking.k8s.io", ("v1", "v1beta1"), "servicecidrs", "ServiceCIDR", decode_service_range),
    *(OptionalKind(row.group, row.versions, row.plural, row.kind, row.decode) for row in CONTROLLER_KINDS),
)
