"""The Gateway API's objects and those of controllers' own APIs: of each what decides about names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from nodeagent.model.annotations import NO_ANNOTATIONS
from nodeagent.model.references import LoadBalancerPoint, ObjectRef

GATEWAY_API = "gateway.networking.k8s.io"
"""The API group of Gateways and Routes."""


def _none() -> Mapping[str, str]:
    return NO_ANNOTATIONS


@dataclass(frozen=True, slots=True)
class Namespace:
    """A Namespace and its labels, by which listeners choose whom they serve."""

    name: str
    labels: Mapping[str, str] = field(default_factory=_none, hash=False)


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One requirement of a label selector; `matchLabels` are In with one value."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllowedNamespaces:
    """From which namespaces something may be attached; `selector` counts with Selector only."""

    origin: Literal["Same", "All", "Selector", "None"] = "Same"
    selector: tuple[LabelRule, ...] = ()


@dataclass(frozen=True, slots=True)
class ParentRef:
    """What a Route or a ListenerSet wants to be attached to; without a section or a port: to all of it."""

    group: str
    kind: str
    namespace: str
    name: str
    section: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """A listener of a Gateway or of a ListenerSet.

    `hostname` is None for all names. `kinds` are group and kind of the Routes it takes; empty for those that
    its protocol has.
    """

    name: str
    port: int
    protocol: str
    hostname: str | None = None
    kinds: tuple[tuple[str, str], ...] = ()
    namespaces: AllowedNamespaces = AllowedNamespaces()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Gateway: its listeners, the addresses that its controller reported, who may add listeners to it."""

    ref: ObjectRef
    created: datetime | None = None
    listeners: tuple[GatewayListener, ...] = ()
    points: tuple[LoadBalancerPoint, ...] = ()
    allowed_listeners: AllowedNamespaces = AllowedNamespaces("None")
    annotations: Mapping[str, str] = field(default_factory=_none, hash=False)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """Listeners that somebody adds to a Gateway (GEP-1713); `group` is that of its API."""

    ref: ObjectRef
    group: str
    parent: ParentRef
    listeners: tuple[GatewayListener, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_none, hash=False)


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTPRoute, GRPCRoute or TLSRoute: its hostnames, as written, and what it is attached to.

    `declined` are the parents whose controllers said in its status that they do not accept it as it is.
    """

    ref: ObjectRef
    created: datetime | None = None
    hostnames: tuple[str, ...] = ()
    parents: tuple[ParentRef, ...] = ()
    declined: tuple[ParentRef, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_none, hash=False)


@dataclass(frozen=True, slots=True)
class ControllerRoute:
    """An object of one controller's own API that asks for hosts.

    `controller` is the name under which IngressClasses know that controller.
    """

    ref: ObjectRef
    controller: str
    created: datetime | None = None
    hosts: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_none, hash=False)
