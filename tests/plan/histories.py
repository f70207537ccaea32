"""Random histories, each made from a number: a cluster and a node that change a little between two passes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any, TypeVar

from msgspec import structs

from nodeagent.config.option_types import DnsName, PodNetwork, RelayRange4
from nodeagent.config.options import ClassService, Config, DnatOptions, LimitOptions
from nodeagent.model import objects as model
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply, Facts, InterfaceAddress, UserHostsLine
from tests.plan import tenant_worlds as worlds
from tests.plan.made_up import standing_names

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_CONTROLLERS = ("k8s.io/ingress-nginx", "traefik.io/ingress-controller")
_RELAY = ip_address("169.254.66.3")
_TAKEN = Endpoint(ip_address("0.0.0.0"), 443)
_ON_INTERFACES = (InterfaceAddress(ip_address("198.51.100.1"), 24, "eth0"),)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a pass is given."""

    snapshot: model.Snapshot
    facts: Facts
    config: Config


class History:
    """A sequence of moments, made from a number."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)  # noqa: S311 - a test's
        world = worlds.make_world(seed)
        self._snapshot = world.both
        self._facts = world.facts
        self._config = self._limited(world.config)
        self._maker = worlds.Maker(self._chance, (*worlds.OTHERS, worlds.TENANT), -5, 9, greedy=False)

    def moments(self, count: int) -> Iterator[Moment]:
        """Yield the moments; between two, a few things change, or nothing does."""
        for _ in range(count):
            yield Moment(self._snapshot, self._facts, self._config)
            for _ in range(self._chance.choice([0, 1, 1, 1, 2, 5])):
                self._change()

    def remember(self, desired: Desired) -> None:
        """What was desired is mostly a fact of the next moment, as the agent has it."""
        if self._chance.random() < 0.9:
            at = {each.address: each.load_balancer for each in desired.addresses}
            self._facts = replace(self._facts, standing_names=standing_names(desired), standing_at=at)

    def _change(self) -> None:
        kind = self._chance.choices(
            [self._of_objects, self._of_cluster, self._of_node, self._of_config], weights=[12, 4, 8, 1]
        )[0]
        kind()

    def _of_objects(self) -> None:
        """An object is created, deleted, changed, listed again as it was, or elsewhere in the list."""
        name = self._chance.choice([*worlds.COLLECTIONS, "ingresses", "ingresses", "routes"])
        known = list(getattr(self._snapshot, name))
        what = self._chance.choice(["create", "delete", "change", "change", "same", "move", "twin"])
        at = self._chance.randrange(len(known)) if known else 0
        if what == "create" or not known:
            made = self._made(name)
            known = [each for each in known if each.ref != made.ref]
            known.insert(self._chance.randint(0, len(known)), made)
        elif what == "delete":
            del known[at]
        elif what == "change":
            known[at] = replace(self._made(name), ref=known[at].ref)
        elif what == "same":
            known[at] = replace(known[at])
        elif what == "move":
            known.insert(self._chance.randint(0, len(known)), known.pop(at))
        elif name == "controller_routes":
            # Two API groups have a kind of this name. No object is listed twice.
            known = list(dict.fromkeys([*known, replace(known[at], hosts=self._maker.hosts())]))
        changed: dict[str, Any] = {name: tuple(known)}
        self._snapshot = replace(self._snapshot, **changed)

    def _made(self, name: str) -> Any:  # noqa: ANN401 - an object of that collection
        maker, chance = self._maker, self._chance
        if name == "ingresses":
            made = maker.ingress()
            points = () if chance.random() < 0.4 else made.points
            annotations = dict(made.annotations)
            if chance.random() < 0.2:
                annotations[model.CLASS_ANNOTATION] = chance.choice(["nginx", "internal"])
            problems = ("status: odd",) if chance.random() < 0.1 else ()
            odd = tuple(chance.sample(worlds.ABSURD_HOSTS, 2)) if chance.random() < 0.1 else ()
            hosts = (*made.hosts, *odd)
            return replace(made, hosts=hosts, points=points, annotations=annotations, problems=problems)
        if name == "controller_routes":
            return replace(maker.controller_route(), controller=chance.choice(_CONTROLLERS))
        if name == "gateways":
            return self._gateway(maker.gateway())
        return {"services": maker.service, "listener_sets": maker.listener_set, "routes": maker.route}[name]()

    def _gateway(self, made: model.Gateway) -> model.Gateway:
        if self._chance.random() < 0.7:
            return made
        rule = model.LabelRule("team", self._chance.choice(["In", "NotIn"]), ("blue",))
        listener = made.listeners[0]
        allowed = replace(listener.namespaces, origin="Selector", selector=(rule,))
        second = model.GatewayListener("tls", 8443, "TLS", self._chance.choice(worlds.HOSTS))
        return replace(made, listeners=(replace(listener, namespaces=allowed), second), problems=("odd",))

    def _of_cluster(self) -> None:
        chance, snapshot = self._chance, self._snapshot
        changes: dict[str, Any] = {
            "namespaces": tuple(
                model.Namespace(name, {"team": chance.choice(["blue", "red"])})
                for name in (*worlds.OTHERS, worlds.TENANT)
                if chance.random() < 0.8
            ),
            "ingress_classes": tuple(
                model.IngressClass(name, chance.choice([None, *_CONTROLLERS]), chance.random() < 0.3)
                for name in ("nginx", "internal")
                if chance.random() < 0.8
            ),
            "service_ranges": (
                model.ServiceRange(
                    "kubernetes", (ip_network(chance.choice(["10.96.0.0/16", "192.0.2.2/31"])),)
                ),
            ),
            "relay_endpoints": tuple(
                model.RelayEndpoint(ip_address(f"10.244.3.{last}"), "p443", 443, ready=chance.random() < 0.7)
                for last in range(chance.randint(0, 3))
            ),
            "relay_service": None if snapshot.relay_service else worlds.make_world(0).cluster.relay_service,
            "node": None
            if snapshot.node is None or chance.random() < 0.2
            else replace(
                snapshot.node,
                names=tuple(chance.sample([*worlds.HOSTS[:4], "node1"], 1)),
                provider_id=chance.choice(["", "hcloud://1", "aws:///eu-west-1a/i-1"]),
            ),
            "unreadable": (model.Unreadable("a.yaml:1", "not YAML"),) if chance.random() < 0.5 else (),
            "not_covered": ("gateways not covered: no",) if chance.random() < 0.5 else (),
        }
        name = chance.choice(list(changes))
        if name == "node" and changes[name] is None:
            changes = {"node": worlds.make_world(chance.randrange(1000)).cluster.node}
        self._snapshot = replace(snapshot, **{name: changes[name]})

    def _of_node(self) -> None:
        chance, facts = self._chance, self._facts
        host = chance.choice(worlds.HOSTS)
        line = UserHostsLine(chance.randint(1, 9), "203.0.113.9", chance.random() < 0.3)
        lines = frozenset(chance.sample([_RELAY, *worlds.ADDRESSES[:2], ip_address("169.254.66.5")], 1))
        changes: list[Callable[[], Facts]] = [
            lambda: replace(facts, dns=self._changed(facts.dns, host, self._answer())),
            lambda: replace(facts, dns=self._changed(facts.dns, host, self._answer())),
            lambda: replace(facts, dns=dict(facts.dns)),
            lambda: replace(facts, user_names=self._changed(facts.user_names, host, line)),
            lambda: replace(facts, standing_names=self._changed(facts.standing_names, host, lines)),
            lambda: replace(facts, node_names=frozenset({"node1", chance.choice(worlds.HOSTS)})),
            lambda: replace(facts, api_server_names=frozenset({chance.choice(worlds.HOSTS)})),
            lambda: replace(facts, takes_wildcards=not facts.takes_wildcards),
            lambda: replace(facts, addresses=() if facts.addresses else _ON_INTERFACES),
            lambda: replace(facts, api_servers=frozenset({Endpoint(chance.choice(worlds.ADDRESSES), 443)})),
            lambda: replace(facts, port_holders=self._changed(facts.port_holders, _TAKEN, 65534)),
            lambda: replace(facts, ipv6_off="" if facts.ipv6_off else "disable_ipv6"),
            lambda: replace(facts, short_circuited=frozenset(chance.sample(worlds.ADDRESSES, 2))),
            lambda: replace(facts, source_addresses=tuple(chance.sample(worlds.ADDRESSES, 1))),
            lambda: replace(facts, notes=(f"note {chance.randint(0, 2)}",)),
            lambda: replace(facts, addresses=(*facts.addresses[:2], *self._on_interfaces())),
        ]
        self._facts = chance.choice(changes)()

    def _on_interfaces(self) -> list[InterfaceAddress]:
        """Return addresses of the relay's range, nodeagent's own and another program's."""
        chance = self._chance
        return [
            InterfaceAddress(_RELAY + each - 3, 32, chance.choice(["hairpin0", "lo"]), chance.random() < 0.5)
            for each in chance.sample(range(8), chance.randint(0, 4))
        ]

    def _answer(self) -> DnsAnswer:
        chance = self._chance
        addresses: list[IPAddress] = chance.sample([*worlds.ADDRESSES, _RELAY], chance.randint(1, 2))
        told = DnsReply(DnsOutcome.ADDRESSES, tuple(addresses))
        if chance.random() < 0.3:
            return DnsAnswer(DnsReply(DnsOutcome.TIMEOUT, trouble="no answer"), chance.choice([None, told]))
        if chance.random() < 0.2:
            told = DnsReply(chance.choice([DnsOutcome.NXDOMAIN, DnsOutcome.NO_ADDRESS]))
        return DnsAnswer(told, told)

    def _changed(self, known: Mapping[_Key, _Item], name: _Key, item: _Item) -> dict[_Key, _Item]:
        changed = {**known, name: item}
        if self._chance.random() < 0.3:
            del changed[name]
        return changed

    def _of_config(self) -> None:
        config = worlds.make_world(self._chance.randrange(1000)).config
        self._config = self._limited(config)

    def _limited(self, config: Config) -> Config:
        chance = self._chance
        options = config.load_balancers
        hosts = structs.replace(
            config.hosts,
            enabled=chance.random() < 0.9,
            exclude=tuple(map(DnsName, chance.choice([(), (), ("corp.example.com", "test")]))),
        )
        dnat = DnatOptions(
            backend=chance.choice(["auto", "auto", "iptables", "none"]),
            pods=chance.random() < 0.7,
            pod_cidrs=tuple(map(PodNetwork, chance.choice([(), ("10.244.2.0/24", "fd00:10:244::/64")]))),
        )
        relay = structs.replace(
            config.relay,
            ipv4=RelayRange4(chance.choice(["169.254.66.0/28", "169.254.66.0/30", "169.254.66.0/32"])),
        )
        options = structs.replace(options, detect=chance.random() < 0.9)
        classes = tuple(
            ClassService(
                DnsName(chance.choice(worlds.OTHERS)),
                DnsName(chance.choice(worlds.NAMES)),
                ingress_class=chance.choice(["nginx", "internal", _CONTROLLERS[1]]),
            )
            for _ in range(chance.choice([0, 0, 1]))
        )
        return structs.replace(
            config,
            hosts=hosts,
            dnat=dnat,
            relay=relay,
            load_balancers=structs.replace(options, ingress_classes=classes),
            limits=LimitOptions(
                hostnames=chance.choice([2, 4, 20_000]),
                hostnames_per_namespace=chance.choice([1, 3, 5000]),
                ports_per_service=chance.choice([2, 64]),
                load_balancers_per_namespace=chance.choice([2, 32]),
            ),
        )
