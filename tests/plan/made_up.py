"""A small made-up cluster, piece by piece: each test says only what matters to it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_interface, ip_network
from types import MappingProxyType

from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config
from nodeagent.model import objects as model
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.decisions import LoadBalancerDecision, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts, InterfaceAddress
from nodeagent.plan.planner import plan

Claiming = model.Ingress | model.Gateway | model.ListenerSet | model.Route | model.ControllerRoute
Found = (
    model.Service
    | model.IngressClass
    | model.Namespace
    | model.NodeAddresses
    | model.ServiceRange
    | IPAddress
    | Claiming
)
"""What a cluster can be made up of; an address is the ClusterIP of another Service."""

_NONE: Mapping[str, str] = MappingProxyType({})

FACTS = Facts(node_name="node1", node_names=frozenset({"node1"}))
NODE = model.Node("node1", pod_cidrs=(ip_network("10.244.1.0/24"),), addresses=(ip_address("198.51.100.1"),))


def at(second: int) -> datetime:
    """A moment; a smaller number is earlier."""
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def endpoint(text: str) -> Endpoint:
    """`192.0.2.1:443` or `[2001:db8::1]:443`."""
    address, _, port = text.rpartition(":")
    return Endpoint(ip_address(address.strip("[]")), int(port))


def point(
    ip: str | None = None, *, hostname: str | None = None, mode: str | None = None
) -> model.LoadBalancerPoint:
    return model.LoadBalancerPoint(ip_address(ip) if ip else None, hostname, mode)


def service(  # noqa: PLR0913 - each test names the one or two that matter to it
    name: str = "blue",
    *,
    namespace: str = "ingress",
    ips: Iterable[str] = ("192.0.2.1",),
    points: tuple[model.LoadBalancerPoint, ...] | None = None,
    ports: Iterable[str] = ("80", "443"),
    gateway: str | None = None,
    cluster_ips: Iterable[str] = ("10.96.0.7",),
    created: int | None = 0,
    annotations: Mapping[str, str] = _NONE,
    problems: tuple[str, ...] = (),
    load_balancer_class: str | None = None,
) -> model.Service:
    """A Service of type LoadBalancer; a port is `443`, `443/UDP` or `443:https`."""
    return model.Service(
        model.ObjectRef("Service", namespace, name),
        created=None if created is None else at(created),
        cluster_ips=tuple(ip_address(text) for text in cluster_ips),
        ports=tuple(map(_service_port, ports)),
        points=points if points is not None else tuple(point(ip) for ip in ips),
        annotations=annotations,
        problems=problems,
        load_balancer_class=load_balancer_class,
        gateway=gateway,
    )


def ingress(  # noqa: PLR0913 - each test names the one or two that matter to it
    *hosts: str,
    name: str = "site",
    namespace: str = "web",
    points: Iterable[model.LoadBalancerPoint] = (point("192.0.2.1"),),
    created: int | None = 0,
    ingress_class: str | None = None,
    annotations: Mapping[str, str] = _NONE,
    problems: tuple[str, ...] = (),
) -> model.Ingress:
    """An Ingress; its status names the first load balancer unless said otherwise."""
    return model.Ingress(
        model.ObjectRef("Ingress", namespace, name),
        created=None if created is None else at(created),
        class_name=ingress_class,
        hosts=hosts,
        points=tuple(points),
        annotations=annotations,
        problems=problems,
    )


def answered(name: str, *addresses: str) -> Facts:
    """Facts of a node whose DNS server answers for a hostname with these addresses."""
    reply = DnsReply(DnsOutcome.ADDRESSES, tuple(map(ip_address, addresses)))
    return replace(FACTS, dns={name: DnsAnswer(reply, reply)})


def dns_answer(value: list[str] | str, before: list[str] | None = None) -> DnsAnswer:
    """What DNS says: addresses, or an outcome such as `nxdomain`; while it is away, what it said before."""
    if isinstance(value, str):
        outcome = DnsOutcome(value)
        reply = DnsReply(outcome, trouble="" if outcome.tells else f"192.0.2.53: {value}")
    else:
        reply = DnsReply(DnsOutcome.ADDRESSES, tuple(map(ip_address, value)))
    return DnsAnswer(reply, reply if reply.outcome.tells else dns_answer(before).latest if before else None)


def interface_address(text: str) -> InterfaceAddress:
    """`198.51.100.11/24 on eth0`; nodeagent's own relay addresses end in `, ours`."""
    where, _, ours = text.partition(", ")
    address, _, interface = where.partition(" on ")
    found = ip_interface(address)
    return InterfaceAddress(found.ip, found.network.prefixlen, interface, ours=ours == "ours")


def config(text: str = "", *, proxies: Iterable[str] = ("blue", "green"), balancers: str = "") -> Config:
    """A configuration file that lists these Services of namespace `ingress` and trusts example.com.

    The text has its other sections, `balancers` further options for load balancers.
    """
    listed = ", ".join(f"{{namespace: ingress, name: {name}}}" for name in proxies)
    given = {line.partition(":")[0] for line in text.splitlines()}
    usual = {"loadBalancers": f"{{services: [{listed}], {balancers}}}", "hosts": "{allow: [example.com]}"}
    lines = [f"{section}: {options}" for section, options in usual.items() if section not in given]
    return parse_config("\n".join([*lines, text]), "nodeagent.yaml")


def desired(
    *found: Found, node: model.Node | None = NODE, facts: Facts = FACTS, options: Config | None = None
) -> Desired:
    snapshot = model.Snapshot(
        services=tuple(each for each in found if isinstance(each, model.Service)),
        ingresses=tuple(each for each in found if isinstance(each, model.Ingress)),
        ingress_classes=tuple(each for each in found if isinstance(each, model.IngressClass)),
        gateways=tuple(each for each in found if isinstance(each, model.Gateway)),
        listener_sets=tuple(each for each in found if isinstance(each, model.ListenerSet)),
        routes=tuple(each for each in found if isinstance(each, model.Route)),
        controller_routes=tuple(each for each in found if isinstance(each, model.ControllerRoute)),
        namespaces=tuple(each for each in found if isinstance(each, model.Namespace)),
        node=node,
        nodes=tuple(each for each in found if isinstance(each, model.NodeAddresses)),
        service_ranges=tuple(each for each in found if isinstance(each, model.ServiceRange)),
        other_cluster_ips=frozenset(each for each in found if isinstance(each, IPAddress)),
    )
    listed = [each.ref.name for each in snapshot.services if each.ref.name in {"blue", "green"}]
    return plan(snapshot, facts, options or config(proxies=listed))


def of_service(planned: Desired, name: str = "blue") -> LoadBalancerDecision:
    (decision,) = (each for each in planned.load_balancers if each.load_balancer.name == name)
    return decision


def of_name(planned: Desired, name: str) -> NameDecision:
    (decision,) = (each for each in planned.names if each.name == name)
    return decision


def redirects(planned: Desired) -> dict[str, str]:
    """Load balancer endpoint to relay endpoint, as text."""
    return {str(redirect.match): str(redirect.to) for redirect in planned.dnat.redirects}


def relay_of(planned: Desired, name: str = "blue") -> dict[int, str]:
    """The relay addresses of one load balancer as text, by family."""
    return {address.version: str(address) for address in of_service(planned, name).relay_addresses}


def hosts(planned: Desired) -> list[str]:
    return [f"{line.address} {line.name}" for line in planned.hosts]


def standing_names(planned: Desired) -> dict[str, frozenset[IPAddress]]:
    """The addresses of the managed block's lines, by hostname."""
    found: dict[str, frozenset[IPAddress]] = {}
    for line in planned.hosts:
        found[line.name] = found.get(line.name, frozenset()) | {line.address}
    return found


def _service_port(text: str) -> model.ServicePort:
    rest, _, protocol = text.partition("/")
    number, _, name = rest.partition(":")
    return model.ServicePort(name, protocol or "TCP", int(number))


ALL = model.AllowedNamespaces("All")
NONE = model.AllowedNamespaces("None")


def listener(  # noqa: PLR0913 - each test names the one or two that matter to it
    hostname: str | None = None,
    *,
    name: str = "web",
    port: int = 443,
    protocol: str = "HTTPS",
    kinds: Iterable[str] = (),
    allowed: model.AllowedNamespaces = ALL,
) -> model.GatewayListener:
    """A listener that takes Routes from everywhere unless said otherwise."""
    return model.GatewayListener(
        name, port, protocol, hostname, tuple((model.GATEWAY_API, kind) for kind in kinds), allowed
    )


def gateway(  # noqa: PLR0913 - each test names the one or two that matter to it
    *listeners: model.GatewayListener,
    name: str = "public",
    namespace: str = "infra",
    points: Iterable[model.LoadBalancerPoint] = (point("192.0.2.1"),),
    created: int | None = 0,
    allowed: model.AllowedNamespaces = NONE,
    annotations: Mapping[str, str] = _NONE,
    problems: tuple[str, ...] = (),
) -> model.Gateway:
    """A Gateway; its status names the first load balancer unless said otherwise."""
    return model.Gateway(
        model.ObjectRef("Gateway", namespace, name),
        at(created) if created is not None else None,
        listeners or (listener(),),
        tuple(points),
        allowed,
        annotations=annotations,
        problems=problems,
    )


def parent(  # noqa: PLR0913 - a reference has these parts
    name: str = "public",
    *,
    namespace: str = "infra",
    section: str | None = None,
    port: int | None = None,
    kind: str = "Gateway",
    group: str = model.GATEWAY_API,
) -> model.ParentRef:
    """A reference to a Gateway, or to something else."""
    return model.ParentRef(group, kind, namespace, name, section, port)


def listener_set(
    *listeners: model.GatewayListener,
    namespace: str = "team",
    to: model.ParentRef | None = None,
    annotations: Mapping[str, str] = _NONE,
) -> model.ListenerSet:
    ref = model.ObjectRef("ListenerSet", namespace, "more")
    return model.ListenerSet(ref, to or parent(), listeners or (listener(),), annotations)


def route(  # noqa: PLR0913 - each test names the one or two that matter to it
    *hostnames: str,
    name: str = "site",
    namespace: str = "web",
    kind: str = "HTTPRoute",
    to: Iterable[model.ParentRef] | None = None,
    declined: Iterable[model.ParentRef] = (),
    created: int | None = 0,
    annotations: Mapping[str, str] = _NONE,
) -> model.Route:
    """A Route that wants to be attached to the Gateway above unless said otherwise."""
    return model.Route(
        model.ObjectRef(kind, namespace, name),
        at(created) if created is not None else None,
        hostnames,
        tuple(to) if to is not None else (parent(),),
        tuple(declined),
        annotations=annotations,
    )
