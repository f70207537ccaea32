"""What each object claims: its hostnames, and what it says about the load balancer that serves them. Pure.

For Ingresses and objects of controllers' own APIs (Traefik's, Istio's), the class shows the load balancer.
Source: the Kubernetes documentation, "Ingress class" and "Default IngressClass". The annotation is the way
before Kubernetes 1.18, and every controller still understands it.

A Route of the Gateway API claims through the listeners to which it is attached, by the rules of the API (v1):
ParentReference, Listener.allowedRoutes, ListenerSet, HTTPRoute.spec.hostnames. Its status says which
parents don't accept it as it is now, and which default Gateways do (GEP-3793). A missing status means nothing
else: the rules show what the controller will decide.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import astuple

from nodeagent.model import objects as model
from nodeagent.model.addresses import canonical, is_wildcard
from nodeagent.model.decisions import bounded
from nodeagent.plan.identity.identify import opt_out


class LoadBalancerHints(Struct, frozen=True, eq=False, weakref=True):
    """What objects say about the load balancer that serves them.

    All that say the same share one value (`one_of`), compared by identity: hashing the addresses of each of
    ten thousand Ingresses costs more than all else.

    Attributes:
        points, problems: those of its status, which `status` names for reasons.
        ingress_class, controller: None where they are unknown (IngressClass.spec.controller).
        gateway: the Gateway that the object is attached to.
        service: the path of the object, if it is the load balancer's own Service.
        unattached: why nothing serves it, if so.
    """

    points: tuple[model.LoadBalancerPoint, ...] = ()
    problems: tuple[str, ...] = ()
    status: str = "its status.loadBalancer"
    ingress_class: str | None = None
    controller: str | None = None
    gateway: model.ObjectRef | None = None
    service: str = ""
    unattached: str = ""


_HINTS: WeakValueDictionary[tuple[object, ...], LoadBalancerHints] = WeakValueDictionary()


def one_of(hints: LoadBalancerHints) -> LoadBalancerHints:
    """Return the one value that says this, as long as a claim has it."""
    return _HINTS.setdefault(astuple(hints), hints)


class Claim(Struct, frozen=True, gc=False):
    """One object claims hostnames: canonical, each once.

    `excluded` is why it is excluded, if it is, and `excluded_in` the namespace that excluded it.
    `number` is its place among the claims of one object.
    """

    ref: model.ObjectRef
    age: model.Age
    names: tuple[str, ...]
    hints: LoadBalancerHints
    excluded: str | None = None
    excluded_in: str = ""
    number: int = 0


_MESH = {"Service", "ServiceEntry", "EgressNetwork", "Hostname", "MeshService", "ServiceImport"}
_KINDS_OF_PROTOCOL = {
    "HTTP": frozenset({"HTTPRoute", "GRPCRoute"}),
    "HTTPS": frozenset({"HTTPRoute", "GRPCRoute"}),
    "TLS": frozenset({"TLSRoute"}),
    "TCP": frozenset[str](),
    "UDP": frozenset[str](),
}
"""Which of the Routes that are read here a listener takes. Controllers have protocols of their own
(`example.com/quic`): with one of those, a listener takes what it lists."""

_OTHER_LISTENER = "has no listener with that name or port"
_OTHER_KIND = "has no listener that accepts this kind"
_OTHER_NAMESPACE = "accepts nothing from this namespace"
_REFUSALS = (_OTHER_LISTENER, _OTHER_KIND, _OTHER_NAMESPACE, "")


class Attachment(Struct, frozen=True):
    """A Route on one listener, by way of a ListenerSet or not; `hostname` is the listener's, canonical."""

    gateway: model.Gateway
    listener: model.GatewayListener
    hostname: str | None
    listener_set: model.ListenerSet | None = None


class Considered(Struct, frozen=True):
    """What decides about a Route: the objects, and how many comparisons of listeners and hostnames."""

    objects: tuple[object, ...]
    comparisons: int


_MOST_REMEMBERED = 4096
"""Thousands of Routes have the same parent: which of its listeners take them is found out once."""


class Parents:
    """All that Routes can be attached to, and the namespaces' labels. Immutable."""

    def __init__(
        self,
        gateways: Iterable[model.Gateway] = (),
        listener_sets: Iterable[model.ListenerSet] = (),
        namespaces: Iterable[model.Namespace] = (),
    ) -> None:
        self._gateways = {(gateway.ref.namespace, gateway.ref.name): gateway for gateway in gateways}
        self._listener_sets = {(parent.ref.namespace, parent.ref.name): parent for parent in listener_sets}
        self._namespaces = {namespace.name: namespace for namespace in namespaces}
        self._taken = lru_cache(_MOST_REMEMBERED)(self._find_taken)

    def considered(self, route: model.Route) -> Considered:
        """Return all that decides about what the Route claims, apart from itself."""
        objects: list[object] = [self._namespaces.get(route.ref.namespace)]
        listeners = 0
        for parent in route.parents:
            gateway, listener_set = self._gateway(parent)
            objects += (gateway, listener_set)
            if listener_set:
                objects.append(self._namespaces.get(listener_set.ref.namespace))
            listeners += len((listener_set or gateway).listeners) if gateway else 0
        return Considered(tuple(objects), listeners * max(1, len(route.hostnames)))

    def attachments(self, route: model.Route) -> Iterator[Attachment]:
        """Yield every listener that the Route references and that takes it, whatever their hostnames."""
        for parent in route.parents:
            if parent not in route.declined:
                yield from self._taken(parent, route.ref.kind, route.ref.namespace)[0]

    def obstacle(self, route: model.Route) -> str:
        """Why a Route without attachments has none, by parent; empty if it is only the mesh's."""
        reasons: dict[str, None] = {}
        for parent in route.parents:
            why = self._taken(parent, route.ref.kind, route.ref.namespace)[1]
            if parent in route.declined:
                why = "does not accept it, according to its status"
            if parent.kind not in _MESH:
                reasons[f"{parent.kind} {parent.namespace}/{parent.name} {why}"] = None
        return "; ".join(reasons) if route.parents else "it names no parent"

    def _find_taken(
        self, parent: model.ParentRef, kind: str, whence: str
    ) -> tuple[tuple[Attachment, ...], str]:
        """Return the listeners of a parent that take such Routes; and why none does, if so."""
        candidates = [
            (attachment, self._refusal(attachment, parent, kind, whence))
            for attachment in self._of_parent(parent)
        ]
        if candidates:
            # The listener that comes closest says most: the others were never meant.
            best = max((refusal for _, refusal in candidates), key=_REFUSALS.index)
            return tuple(attachment for attachment, refusal in candidates if not refusal), best
        if parent.kind == "ListenerSet":
            return (), "adds no listeners to any Gateway"
        gateway = parent.kind == "Gateway"
        return (), "does not exist, or has no listeners" if gateway else "is of a kind that is not read"

    def _refusal(self, attachment: Attachment, parent: model.ParentRef, kind: str, whence: str) -> str:
        """Why a listener does not take a Route; empty when it does."""
        home = (attachment.listener_set or attachment.gateway).ref.namespace
        listener = attachment.listener
        if parent.section not in {None, listener.name} or parent.port not in {None, listener.port}:
            return _OTHER_LISTENER
        if not _takes_kind(listener, kind):
            return _OTHER_KIND
        if not self._allows(listener.namespaces, home, whence):
            return _OTHER_NAMESPACE
        return ""

    def _of_parent(self, parent: model.ParentRef) -> Iterator[Attachment]:
        gateway, added = self._gateway(parent)
        if gateway is None:
            return
        # The Gateway says who may add listeners to it.
        if added and not self._allows(gateway.allowed_listeners, gateway.ref.namespace, added.ref.namespace):
            return
        for listener in (added or gateway).listeners:
            hostname = listener.hostname and canonical(listener.hostname)
            yield Attachment(gateway, listener, hostname, added)

    def _gateway(self, parent: model.ParentRef) -> tuple[model.Gateway | None, model.ListenerSet | None]:
        """Return the Gateway that the parent is, or to which it adds listeners, and then the ListenerSet."""
        added = None
        if (parent.group, parent.kind) == (model.GATEWAY_API, "ListenerSet"):
            added = self._listener_sets.get((parent.namespace, parent.name))
        ref = added.parent if added else parent
        is_gateway = (ref.group, ref.kind) == (model.GATEWAY_API, "Gateway")
        return self._gateways.get((ref.namespace, ref.name)) if is_gateway else None, added

    def _allows(self, allowed: model.AllowedNamespaces, home: str, whence: str) -> bool:
        match allowed.origin:
            case "All":
                return True
            case "Same":
                return home == whence
            case "Selector":
                namespace = self._namespaces.get(whence)
                return namespace is not None and selects(allowed.selector, namespace.labels)
            case "None":
                return False


def _takes_kind(listener: model.GatewayListener, kind: str) -> bool:
    of_protocol = _KINDS_OF_PROTOCOL.get(listener.protocol)
    listed = (model.GATEWAY_API, kind) in listener.kinds
    return listed if of_protocol is None else kind in of_protocol and (listed or not listener.kinds)


def selects(selector: Iterable[model.LabelRule], labels: Mapping[str, str]) -> bool:
    """Whether all rules hold; a selector without rules selects everything."""
    holds = {
        "In": lambda rule: labels.get(rule.key) in rule.values,
        "NotIn": lambda rule: labels.get(rule.key) not in rule.values,
        "Exists": lambda rule: rule.key in labels,
        "DoesNotExist": lambda rule: rule.key not in labels,
    }
    return all(holds[rule.operator](rule) for rule in selector)


def claims_of_route(route: model.Route, parents: Parents) -> tuple[Claim, ...]:
    """Return a claim for each Gateway through which the Route is reached, and one for what is not reached."""
    attachments = tuple(parents.attachments(route))
    hostnames = tuple(dict.fromkeys(map(canonical, route.hostnames)))
    age = model.by_age(route)
    reached: dict[str, None] = {}
    claims: list[Claim] = []
    by_gateway = _names_by_gateway(route, attachments, hostnames)
    for number, (gateway, excluded, by, names) in enumerate(by_gateway):
        reached.update(dict.fromkeys(names))
        hints = LoadBalancerHints(
            points=gateway.points,
            problems=gateway.problems,
            status=f"status.addresses of {gateway.ref}",
            gateway=gateway.ref,
        )
        claims.append(Claim(route.ref, age, tuple(names), one_of(hints), excluded, by, number))
    # The hostnames by which no listener is reached, so that the reason is reported.
    left_over = tuple(
        hostname
        for hostname in hostnames
        if hostname not in reached and not (reached and common_hostnames(hostname, reached))
    )
    reason = (
        "no listener that it is attached to has this hostname" if attachments else parents.obstacle(route)
    )
    if left_over and reason:
        unattached = one_of(LoadBalancerHints(unattached=bounded(reason)))
        claims.append(Claim(route.ref, age, left_over, unattached, number=len(claims)))
    return tuple(claims)


def _names_by_gateway(
    route: model.Route, attachments: Iterable[Attachment], hostnames: Sequence[str]
) -> list[tuple[model.Gateway, str | None, str, Iterable[str]]]:
    """Return the hostnames by which a Route is reached through each Gateway, and what excludes them."""
    by_gateway: dict[tuple[model.ObjectRef, str | None, str], dict[str, None]] = {}
    gateways: dict[model.ObjectRef, model.Gateway] = {}
    for attachment in attachments:
        names = common_hostnames(attachment.hostname, hostnames)
        if names:
            gateway = attachment.gateway
            gateways[gateway.ref] = gateway
            key = (gateway.ref, *_exclusion(route, attachment))
            by_gateway.setdefault(key, {}).update(dict.fromkeys(names))
    return [(gateways[ref], excluded, by, names) for (ref, excluded, by), names in by_gateway.items()]


def _exclusion(route: model.Route, attachment: Attachment) -> tuple[str | None, str]:
    """Why the Route is excluded on that listener, and the namespace that says so."""
    for owner in (route, attachment.listener_set, attachment.gateway):
        if owner is not None and owner.annotations and (reason := opt_out(owner.annotations)):
            return (reason if owner is route else f"{owner.ref}: {reason}", owner.ref.namespace)
    return None, ""


def common_hostnames(listener: str | None, route: Collection[str]) -> tuple[str, ...]:
    """Return the hostnames (canonical) by which a Route is reached through a listener, in the Route's order.

    Of each pair it is the more specific one, if that covers nothing that the other does not: a wildcard also
    covers one below it. A listener without one takes all, a Route without any what the listener takes.
    """
    if listener is None:
        return tuple(dict.fromkeys(route))
    if not route:
        return (listener,)
    below = listener[1:] if is_wildcard(listener) else None
    common: list[str] = []
    for hostname in route:
        if hostname == listener or (below is not None and hostname.endswith(below)):
            common.append(hostname)
        elif is_wildcard(hostname) and listener.endswith(hostname[1:]):
            common.append(listener)
    return tuple(dict.fromkeys(common))


_Claimant = model.Ingress | model.Route | model.ControllerRoute | model.Service


def claims_of(found: _Claimant, classes: Iterable[model.IngressClass], parents: Parents) -> tuple[Claim, ...]:
    """Return what an object claims: a Route for each Gateway, any other all of its hosts at once. Pure.

    An Ingress is served where its status says, else its class: that of its spec, else of its annotation, else
    the only default one. So is an object of a controller's own API; its class is its own, or the only one of
    its controller. external-dns leads hostnames to the Service that has them.
    """
    named = found.annotations.get(model.CLASS_ANNOTATION) if found.annotations else None
    match found:
        case model.Route():
            return claims_of_route(found, parents)
        case model.Ingress(hosts=hosts):
            defaults = [entry.name for entry in classes if entry.default]
            named = found.class_name or named or (defaults[0] if len(defaults) == 1 else None)
            hints = LoadBalancerHints(
                points=found.points,
                problems=found.problems,
                ingress_class=named,
                controller=next((entry.controller for entry in classes if entry.name == named), None) or None,
            )
        case model.ControllerRoute(hosts=hosts):
            own = [
                entry.name for entry in classes if entry.controller and entry.controller == found.controller
            ]
            hints = LoadBalancerHints(
                points=found.points,
                status="its status",
                ingress_class=found.class_name or named or (own[0] if len(own) == 1 else None),
                controller=found.controller,
            )
        case model.Service():
            listed = (found.annotations.get(key, "").split(",") for key in model.EXTERNAL_DNS)
            hosts = tuple(filter(None, map(str.strip, chain.from_iterable(listed))))
            hints = LoadBalancerHints(service=found.ref.path)
    names = tuple(dict.fromkeys(map(canonical, hosts)))
    excluded = opt_out(found.annotations) if found.annotations else None
    claimed = hosts if names == hosts else names
    return (Claim(found.ref, model.by_age(found), claimed, one_of(hints), excluded, found.ref.namespace),)
