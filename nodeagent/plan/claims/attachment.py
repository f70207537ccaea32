"""To which listeners a Route is attached, by the rules of the Gateway API (v1).

The API's reference: ParentReference, Listener.allowedRoutes, ListenerSet. The Route's status is believed in
one case only: a parent that does not accept it as it is now has it not. That no status stands yet means
nothing: what the rules say is what the controller will come to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeagent.model.routes import (
    GATEWAY_API,
    AllowedNamespaces,
    Gateway,
    GatewayListener,
    ListenerSet,
    Namespace,
    ParentRef,
    Route,
)
from nodeagent.plan.claims.label_selectors import selects

_KINDS_OF_PROTOCOL = {
    "HTTP": frozenset({"HTTPRoute", "GRPCRoute"}),
    "HTTPS": frozenset({"HTTPRoute", "GRPCRoute"}),
    "TLS": frozenset({"TLSRoute"}),
    "TCP": frozenset[str](),
    "UDP": frozenset[str](),
}
"""Which of the Routes that are read here a listener takes. Controllers have protocols of their own
(`example.com/quic`): of those a listener takes what it lists."""

_WITH_LISTENERS = frozenset({"Gateway", "ListenerSet", "XListenerSet"})
_OTHER_LISTENER = "has no listener of that name or port"
_OTHER_KIND = "has no listener that takes this kind"
_OTHER_NAMESPACE = "takes nothing from this namespace"
_REFUSALS = (_OTHER_LISTENER, _OTHER_KIND, _OTHER_NAMESPACE)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A Route on one listener, by way of a ListenerSet or not."""

    gateway: Gateway
    listener: GatewayListener
    listener_set: ListenerSet | None = None


@dataclass(frozen=True, slots=True)
class Parents:
    """All that Routes can be attached to, and the namespaces' labels."""

    gateways: Mapping[tuple[str, str], Gateway]
    """By namespace and name."""
    listener_sets: Mapping[tuple[str, str, str], ListenerSet]
    """By API group, namespace and name."""
    namespaces: Mapping[str, Namespace]

    def attachments(self, route: Route) -> Iterator[Attachment]:
        """Yields every listener that the Route asks for and that takes it, whatever their hostnames."""
        for parent in route.parents:
            if parent in route.declined:
                continue
            for attachment in self._of_parent(parent):
                if not self._refusal(attachment, parent, route):
                    yield attachment

    def obstacle(self, route: Route) -> str:
        """Why a Route without attachments has none, parent by parent; empty where none is a listener's."""
        return "; ".join(
            dict.fromkeys(
                f"{parent.kind} {parent.namespace}/{parent.name} {self._obstacle(route, parent)}"
                for parent in route.parents
                if parent.kind in _WITH_LISTENERS
            )
        )

    def _obstacle(self, route: Route, parent: ParentRef) -> str:
        if parent in route.declined:
            return "does not accept it, says its status"
        refusals = [self._refusal(attachment, parent, route) for attachment in self._of_parent(parent)]
        if not refusals:
            gateway = parent.kind == "Gateway"
            return "is not there, or has no listeners" if gateway else "adds no listeners to any Gateway"
        # What a listener comes closest with says most: the others were never meant.
        return max(refusals, key=_REFUSALS.index)

    def _refusal(self, attachment: Attachment, parent: ParentRef, route: Route) -> str:
        """Why a listener does not take a Route; empty when it does."""
        home = (attachment.listener_set or attachment.gateway).ref.namespace
        if not _is_asked_for(attachment.listener, parent):
            return _OTHER_LISTENER
        if not _takes_kind(attachment.listener, route.ref.kind):
            return _OTHER_KIND
        if not self._allows(attachment.listener.namespaces, home, route.ref.namespace):
            return _OTHER_NAMESPACE
        return ""

    def _of_parent(self, parent: ParentRef) -> Iterator[Attachment]:
        if (parent.group, parent.kind) == (GATEWAY_API, "Gateway"):
            gateway = self.gateways.get((parent.namespace, parent.name))
            if gateway is not None:
                yield from (Attachment(gateway, listener) for listener in gateway.listeners)
            return
        found = self.listener_sets.get((parent.group, parent.namespace, parent.name))
        if found is None or found.ref.kind != parent.kind:
            return
        gateway = self._gateway_of(found)
        if gateway is not None:
            yield from (Attachment(gateway, listener, found) for listener in found.listeners)

    def _gateway_of(self, listener_set: ListenerSet) -> Gateway | None:
        """The Gateway that a ListenerSet adds to; None where it may not."""
        parent = listener_set.parent
        if (parent.group, parent.kind) != (GATEWAY_API, "Gateway"):
            return None
        gateway = self.gateways.get((parent.namespace, parent.name))
        if gateway is None:
            return None
        home, whence = gateway.ref.namespace, listener_set.ref.namespace
        return gateway if self._allows(gateway.allowed_listeners, home, whence) else None

    def _allows(self, allowed: AllowedNamespaces, home: str, whence: str) -> bool:
        match allowed.origin:
            case "All":
                return True
            case "Same":
                return home == whence
            case "Selector":
                namespace = self.namespaces.get(whence)
                return namespace is not None and selects(allowed.selector, namespace.labels)
            case "None":
                return False


def _is_asked_for(listener: GatewayListener, parent: ParentRef) -> bool:
    return parent.section in {None, listener.name} and parent.port in {None, listener.port}


def _takes_kind(listener: GatewayListener, kind: str) -> bool:
    of_protocol = _KINDS_OF_PROTOCOL.get(listener.protocol)
    if of_protocol is None:
        return (GATEWAY_API, kind) in listener.kinds
    return kind in of_protocol and (not listener.kinds or (GATEWAY_API, kind) in listener.kinds)
