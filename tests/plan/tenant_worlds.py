"""Random clusters with a tenant in them, each made from one number: quickly, so that many can be tried."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any, TypeVar

from nodeagent.config import options
from nodeagent.config.option_types import DnsName, RelayRange4
from nodeagent.model import objects as model
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts, InterfaceAddress
from nodeagent.plan.identity.providers import PROVIDERS
from nodeagent.plan.planner import plan
from tests.cases import cases_of
from tests.plan.made_up import Claiming

TENANT = "tenant"
OTHERS = ("ingress", "team", "zoo")
_CASES = cases_of(__file__, "cases.yaml")
_CHOICES = _CASES["worlds"]
ADDRESSES: tuple[IPAddress, ...] = tuple(map(ip_address, _CHOICES["addresses"]))
NEVER: tuple[IPAddress, ...] = tuple(map(ip_address, _CHOICES["never"]))
HOSTS: tuple[str, ...] = tuple(_CHOICES["hosts"])
ODD_HOSTS = (*_CHOICES["odd"], "x" * 300)
OWN_HOSTNAMES = ("lb1.example.net", "lb2.example.net")
CLASSES = (None, "nginx", "internal")
PORTS = (80, 443, 8443)
COLLECTIONS = ("services", "ingresses", "gateways", "listener_sets", "routes", "controller_routes")

_Object = TypeVar("_Object", bound=model.Service | Claiming)


@dataclass(frozen=True)
class World:
    """A cluster without the tenant, what the node and the administrator say, and the tenant's objects."""

    cluster: model.Snapshot
    tenant: model.Snapshot
    facts: Facts
    config: options.Config

    @property
    def both(self) -> model.Snapshot:
        """S + T."""
        more: dict[str, Any] = {
            name: (*getattr(self.cluster, name), *getattr(self.tenant, name)) for name in COLLECTIONS
        }
        return replace(self.cluster, **more)

    @cached_property
    def before(self) -> Desired:
        """plan(S)."""
        return plan(self.cluster, self.facts, self.config)

    @cached_property
    def after(self) -> Desired:
        """plan(S + T), on a node that serves plan(S): what it serves, it knows by its hosts file."""
        return plan(self.both, replace(self.facts, standing_names=self.standing), self.config)

    @cached_property
    def standing(self) -> dict[str, frozenset[IPAddress]]:
        """The addresses of the lines of plan(S), or those that the node has anyway."""
        written: dict[str, frozenset[IPAddress]] = {}
        for line in self.before.hosts:
            written[line.name] = written.get(line.name, frozenset()) | {line.address}
        return {**self.facts.standing_names, **written}


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes objects of some namespaces and ages (in seconds: the cluster's own are from 0 to 5)."""

    chance: Random
    namespaces: tuple[str, ...]
    oldest: int
    youngest: int
    greedy: bool

    def objects(self) -> model.Snapshot:
        few = self.chance.randint
        return model.Snapshot(
            services=_unique([self.service() for _ in range(few(0, 5))]),
            ingresses=_unique([self.ingress() for _ in range(few(0, 5))]),
            gateways=_unique([self.gateway() for _ in range(few(0, 2))]),
            listener_sets=_unique([self.listener_set() for _ in range(few(0, 1))]),
            routes=_unique([self.route() for _ in range(few(0, 2))]),
            controller_routes=_unique([self.controller_route() for _ in range(few(0, 1))]),
        )

    def service(self) -> model.Service:
        annotations = {model.PROXY_PROTOCOL: self.chance.choice(["v1", "v2"])} if self.often() else {}
        if not self.often():
            annotations[self.chance.choice(ANNOTATIONS)] = self.chance.choice(ANNOTATION_VALUES)
        if not self.often():
            annotations[model.EXTERNAL_DNS[0]] = ",".join(self.hosts())
        ports = self.chance.sample(PORTS, self.chance.randint(1, 3))
        if self.greedy and not self.often():
            ports += range(2000, 2000 + self.chance.choice([50, 500]))
        protocol = "TCP" if self.often() else "UDP"
        return model.Service(
            self.ref("Service"),
            created=self.age(),
            # The API server gives each ClusterIP once: no one else has the tenant's address.
            cluster_ips=(ip_address("10.96.0.8" if TENANT in self.namespaces else "10.96.0.7"),)
            if self.often()
            else (),
            ports=tuple(model.ServicePort(f"p{port}", protocol, port) for port in ports),
            points=self.points(),
            annotations=annotations,
            gateway=self.chance.choice([None, None, *NAMES]),
            external_ips=() if self.often() else (self.chance.choice(ADDRESSES),),
        )

    def ingress(self) -> model.Ingress:
        """With the status of its controller, mostly."""
        return model.Ingress(
            self.ref("Ingress"),
            created=self.age(),
            class_name=self.chance.choice(CLASSES),
            hosts=self.hosts(),
            points=self.points(),
            annotations={}
            if self.often()
            else {model.EXCLUDE: self.chance.choice(["true", "false", "\u00e9"])},
        )

    def gateway(self) -> model.Gateway:
        return model.Gateway(
            self.ref("Gateway"),
            created=self.age(),
            listeners=(self.listener(),),
            points=self.points(),
            allowed_listeners=model.AllowedNamespaces(self.chance.choice(["All", "Same", "None"])),
            annotations={} if self.often() else {model.EXCLUDE: "true"},
        )

    def listener_set(self) -> model.ListenerSet:
        return model.ListenerSet(self.ref("ListenerSet"), self.parent(), listeners=(self.listener(),))

    def route(self) -> model.Route:
        parents = {self.parent() for _ in range(self.chance.randint(1, 2))}
        return model.Route(
            self.ref("HTTPRoute"),
            created=self.age(),
            hostnames=self.hosts(),
            parents=tuple(sorted(parents, key=repr)),
            annotations={} if self.often() else {model.EXCLUDE: "true"},
        )

    def controller_route(self) -> model.ControllerRoute:
        """Of a kind without a status, or with one and a class."""
        if self.often():
            return model.ControllerRoute(
                self.ref("IngressRoute"), self.age(), "traefik.io/ingress-controller", hosts=self.hosts()
            )
        return model.ControllerRoute(
            self.ref("HTTPProxy"),
            self.age(),
            "projectcontour.io/ingress-controller",
            class_name=self.chance.choice(CLASSES),
            hosts=self.hosts(),
            points=self.points(),
        )

    def listener(self) -> model.GatewayListener:
        allowed = model.AllowedNamespaces("All" if self.often() else "Same")
        host = self.chance.choice([None, None, *HOSTS])
        return model.GatewayListener("web", 443, "HTTPS", hostname=host, namespaces=allowed)

    def parent(self) -> model.ParentRef:
        """A Gateway of any namespace; others ask nothing of the tenant's: that is theirs to decide."""
        namespace = self.chance.choice([*OTHERS, *self.namespaces])
        return model.ParentRef(model.GATEWAY_API, "Gateway", namespace, self.chance.choice(NAMES))

    def points(self) -> tuple[model.LoadBalancerPoint, ...]:
        """A status: addresses of the pool, sometimes none, a hostname, or what can't be a load balancer's."""
        if not self.often():
            return (model.LoadBalancerPoint(None, self.chance.choice(OWN_HOSTNAMES)),)
        found = [
            model.LoadBalancerPoint(self.chance.choice(ADDRESSES))
            for _ in range(self.chance.choice([0, 1, 1, 2]))
        ]
        if not self.often():
            found.append(model.LoadBalancerPoint(self.chance.choice(NEVER)))
        if not self.often():
            found.append(model.LoadBalancerPoint(None, self.chance.choice(OWN_HOSTNAMES)))
        if not self.often():
            found.append(model.LoadBalancerPoint(self.chance.choice(ADDRESSES), ip_mode="Proxy"))
        return tuple(dict.fromkeys(found))

    def hosts(self) -> tuple[str, ...]:
        """A few of the pool; of a greedy tenant sometimes dozens, or odd ones."""
        found = self.chance.sample(HOSTS, self.chance.randint(1, 3))
        if self.greedy and not self.often():
            found += self.chance.choice([ODD_HOSTS, [f"n{number}.example.com" for number in range(20)]])
        return tuple(found)

    def ref(self, kind: str) -> model.ObjectRef:
        return model.ObjectRef(kind, self.chance.choice(self.namespaces), self.chance.choice(NAMES))

    def age(self) -> datetime:
        return EPOCH + timedelta(seconds=self.chance.randint(self.oldest, self.youngest))

    def often(self) -> bool:
        """True in five of six cases."""
        return self.chance.random() < 5 / 6


def make_world(seed: int, *, oldest: int = -5, youngest: int = 9) -> World:
    """Make the world of a number; the tenant's objects have these ages."""
    chance = Random(seed)  # noqa: S311 - a test's
    cluster = Maker(chance, OTHERS, 0, 5, greedy=False).objects()
    tenant = Maker(chance, (TENANT,), oldest, youngest, greedy=True).objects()
    ports = tuple(model.ServicePort(f"p{port}", "TCP", port) for port in PORTS)
    relay = model.RelayService(
        model.ObjectRef("Service", "relay", "relay"), (ip_address("10.96.0.99"),), ports
    )
    cluster = replace(
        cluster,
        ingress_classes=tuple(model.IngressClass(name, "k8s.io/ingress-nginx") for name in CLASSES if name),
        # The API server gives ClusterIPs out: no load balancer has one, and a tenant can't choose its own.
        service_ranges=(model.ServiceRange("kubernetes", (ip_network("10.96.0.0/16"),)),),
        relay_service=relay,
        relay_endpoints=tuple(
            model.RelayEndpoint(ip_address("10.244.3.3"), each.name, each.port) for each in ports
        ),
        node=model.Node("node1", (ip_network("10.244.1.0/24"),), (ip_address("198.51.100.1"),)),
    )
    return World(cluster, tenant, _facts(chance), _config(chance))


def _facts(chance: Random) -> Facts:
    answers = {}
    for host in (*HOSTS, *OWN_HOSTNAMES):
        if chance.random() < 0.7:
            addresses = chance.sample(ADDRESSES, chance.randint(1, 2))
            reply = DnsReply(DnsOutcome.ADDRESSES, tuple(addresses))
            answers[host] = DnsAnswer(reply, reply)
    on_node = InterfaceAddress(ip_address("198.51.100.1"), 24, "eth0")
    in_both = InterfaceAddress(ip_address("2001:db8:1::1"), 64, "eth0")
    return Facts(
        "node1",
        addresses=(on_node, in_both),
        api_servers=frozenset({Endpoint(ip_address("192.0.2.4"), 443)})
        if chance.random() < 0.2
        else frozenset(),
        dns=answers,
        takes_wildcards=chance.random() < 0.3,
    )


def _config(chance: Random) -> options.Config:
    def some(most: int) -> list[tuple[DnsName, DnsName]]:
        return [
            (DnsName(chance.choice(OTHERS)), DnsName(chance.choice(NAMES)))
            for _ in range(chance.randint(0, most))
        ]

    balancers = options.LoadBalancerOptions(
        services=tuple(
            options.ProxyService(*found, hostname_only=chance.random() < 0.5) for found in some(2)
        ),
        ignore=tuple(options.ServiceName(*found) for found in some(1)),
        ip_mode=chance.choice(["auto", "ignore"]),
    )
    limits = options.LimitOptions(
        hostnames_per_namespace=chance.choice([3, 5000]),
        ports_per_service=chance.choice([2, 64]),
        load_balancers_per_namespace=chance.choice([2, 32]),
        listeners_per_namespace=chance.choice([6, 400]),
    )
    return options.Config(
        load_balancers=balancers,
        # Few slots: relay addresses collide, but no range is ever full.
        relay=options.RelayOptions(
            kind="node" if chance.random() < 5 / 6 else "service", ipv4=RelayRange4("169.254.66.0/28")
        ),
        hosts=options.HostsOptions(
            verify=chance.choice(["dns", "dns", "allow"]),
            allow=tuple(map(DnsName, chance.choice([(), ("example.com",), ("test", "example.org")]))),
        ),
        limits=limits,
    )


def _unique(found: list[_Object]) -> tuple[_Object, ...]:
    return tuple({each.ref: each for each in found}.values())


EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

NAMES = ("blue", "green", "red", "white")
ABSURD_HOSTS = (*_CASES["absurd"], "x" * 64 + ".example.com", "x." * 150 + "com")

ANNOTATIONS = (
    model.EXCLUDE,
    model.PROXY_PROTOCOL,
    *(key.format(port=443) for provider in PROVIDERS for key in provider.switches),
)
ANNOTATION_VALUES: tuple[str, ...] = tuple(_CHOICES["annotations"])
