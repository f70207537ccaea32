"""The complete decision, made of the decisions in the other modules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, IPNetwork, canonical
from nodeagent.model.desired import HEALTH, Desired, DnatRules, DnsQuestion, RelayAddress, some_notes
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ControllerRoute, Gateway, Ingress, ObjectRef, Route, Snapshot
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan, LoadBalancerPlanner
from nodeagent.plan.balancers.node_programs import POD_INTERFACES
from nodeagent.plan.names.claims import ClaimPlanner
from nodeagent.plan.names.hostname_decisions import HostnamePlanner


class Planner:
    """Decides, and remembers its last decisions: what has not changed since is not decided again.

    The result depends only on the input, not on what it remembers. For two equal decisions, it returns the
    same object, so that others find changes as cheaply. `standing` and `standing_at` are facts of the next
    plan.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._forget()
        self.standing: Mapping[str, frozenset[IPAddress]] = {}
        self.standing_at: Mapping[IPAddress, ObjectRef] = {}

    def _forget(self) -> None:
        config = self._config
        self._load_balancers = LoadBalancerPlanner(config)
        self._claims = ClaimPlanner(config.limits, config.load_balancers.ingress_classes)
        self._hostnames = HostnamePlanner(config)

    def plan(self, snapshot: Snapshot, facts: Facts) -> Desired:
        """Return the desired state of the node; the same input in any order gives an equal value."""
        try:
            return self._decided(snapshot, facts)
        except BaseException:
            # The agent goes on, and only some steps remember this pass: what they know no longer fits.
            self._forget()
            raise

    def _decided(self, snapshot: Snapshot, facts: Facts) -> Desired:
        config = self._config
        if snapshot.node is not None:  # none of its names is ever written
            facts = replace(facts, node_names=facts.node_names | {*map(canonical, snapshot.node.names)})
        plans = self._load_balancers.plan(snapshot, facts)
        claims, notes = self._claims.plan(snapshot, plans)
        hostnames = self._hostnames.plan(claims, _following(facts, plans))
        self.standing = hostnames.standing
        self.standing_at = {each: plan.service.ref for plan in plans for each in plan.hosts_addresses}
        own = {  # what to ask DNS about load balancers' own hostnames
            name: DnsQuestion(frozenset(), plan.service.ref.namespace, plan.service.ref, every=True)
            for plan in plans
            for name in plan.own_names
        }
        relays = [plan.relay for plan in plans if plan.relay is not None]
        listeners = tuple(listener for relay in relays for listener in relay.listeners)
        held = dict.fromkeys((listener.bind.address, listener.load_balancer) for listener in listeners)
        addresses = tuple(RelayAddress(address, ref) for address, ref in held)
        redirects = tuple(redirect for relay in relays for redirect in relay.redirects)
        pods = _pod_ranges(snapshot, facts, config)
        used = {one.address.version for one in addresses}
        # Of the families in use, the relay's whole ranges: no other host may reach what listens there.
        guarded = tuple(each for each in (config.relay.ipv4, config.relay.ipv6) if each.version in used)
        return Desired(
            addresses=addresses,
            listeners=listeners,
            dnat=DnatRules(
                redirects if config.dnat.backend != "none" else (),
                pods.redirected,
                guarded,
                pods.admitted if guarded else (),
                users=config.relay.max_connections // _USERS_PART if guarded else 0,
                probed=_probed(config) if guarded else (),
                interfaces=config.dnat.interfaces,
            ),
            hosts=hostnames.hosts,
            load_balancers=tuple(plan.decision for plan in plans),
            names=hostnames.names,
            unreadable=tuple(sorted(snapshot.unreadable)),
            remarks=(
                *facts.notes,
                *(pods.remarks if addresses or redirects or hostnames.hosts else ()),
                *_missing_services(snapshot, config),
                *sorted(snapshot.not_covered),
                *_pending(snapshot),
                *(() if config.hosts.enabled or hostnames.names else (_NO_HOSTNAMES,)),
                *sorted([*_problems(snapshot), *notes]),
            ),
            questions={**hostnames.questions, **own} if own else hostnames.questions,
            only_adds=bool(snapshot.pending),
        )


def _probed(config: Config) -> tuple[int, ...]:
    """Return the ports at which the kubelet's probes arrive: the relay's, and the agent's if it has one."""
    agent = config.telemetry.listen.endpoint
    return tuple(sorted({HEALTH.port, *([agent.port] if agent else ())}))


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Return the desired state, decided from the beginning. Pure."""
    return Planner(config).plan(snapshot, facts)


def _following(facts: Facts, plans: Iterable[LoadBalancerPlan]) -> Facts:
    """Return the facts in which each line is at the address that its load balancer has now.

    An older one, of another namespace, may have taken its relay address (capacity): with it, it would have
    all hostnames that are written there.
    """
    now = {plan.service.ref: plan.hosts_addresses for plan in plans}
    moved: dict[IPAddress, IPAddress | None] = {}
    for address, ref in facts.standing_at.items():
        if address not in (addresses := now.get(ref, ())):
            moved[address] = next((each for each in addresses if each.version == address.version), None)
    if not moved:
        return facts
    standing = {
        name: frozenset(now_at for each in addresses if (now_at := moved.get(each, each)))
        for name, addresses in facts.standing_names.items()
    }
    return replace(facts, standing_names=standing)


_USERS_PART = 32
"""Of the relay's connections, what local users but root get in a family: half of the reserve in both."""


def _problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield what is wrong with objects that claim hostnames, and with Gateways; of a namespace some of it."""
    notes: dict[str, list[str]] = {}
    objects: Iterable[Gateway | Ingress | Route | ControllerRoute]
    objects = chain(snapshot.gateways, snapshot.ingresses, snapshot.routes, snapshot.controller_routes)
    for one in filter(attrgetter("problems"), objects):
        notes.setdefault(one.ref.namespace, []).extend(f"{one.ref}: {problem}" for problem in one.problems)
    for namespace, its in notes.items():
        yield from some_notes(sorted(its), f" on objects of namespace {namespace}")


_NO_HOSTNAMES = "hostnames are not looked at: hosts.enabled is false"


def _pending(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each reason for which kinds were not read yet."""
    for reason in dict.fromkeys(reason for _, reason in sorted(snapshot.pending.items())):
        names = sorted(name for name, why in snapshot.pending.items() if why == reason)
        yield f"nothing is removed until these kinds were read: {', '.join(names)} ({reason})"


def _missing_services(snapshot: Snapshot, config: Config) -> Iterator[str]:
    """Yield a note for each Service that the configuration lists and that does not exist."""
    listed = config.load_balancers.services
    known = {service.ref.path for service in snapshot.services} if listed else set()
    for entry in listed:
        if entry.path not in known:
            near = get_close_matches(entry.path, sorted(known), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield f"loadBalancers.services lists {entry.path}: there is no such LoadBalancer Service{hint}"


class _PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, and which may reach the relay.

    Only its own pods are redirected: traffic from elsewhere may carry the PROXY header already. They may
    reach the relay only if something leads them there, DNAT or CoreDNS: HAProxy connects as the node does,
    which network policies admit.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def _pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> _PodRanges:
    """Return the ranges of `dnat.podCIDRs`, or else the Node's, and notes on pods that nothing serves."""
    if not facts.node_name:
        return _PodRanges()  # a plan for no node has nothing to say of its pods
    why = ""
    if config.dnat.backend == "none":
        why = "dnat.backend is none, and lines of the hosts file serve the node alone"
    elif not config.dnat.pods:
        why = "dnat.pods is false"
    if why and not config.coredns.serves_pods:
        unserved = (
            f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; "
            "the overlay cilium brings it); coredns.servesPods: true says that it does"
        )
        return _PodRanges(remarks=(unserved,))
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        remark = (
            f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
            "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
        )
        if why:
            remark = (
                "the guard drops this node's pods' connections to the relay, to which CoreDNS sends them: no "
                f"pod range of node {facts.node_name!r} is known (no spec.podCIDRs, or no Node object); set "
                "dnat.podCIDRs"
            )
        return _PodRanges(remarks=(remark,))
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    return _PodRanges(() if why else admitted, admitted, _outside(facts, admitted))


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    found: dict[str, list[str]] = {}
    for each in facts.addresses:
        if each.interface not in POD_INTERFACES or each.address.is_link_local:
            continue
        if not any(each.address in network for network in admitted):
            found.setdefault(each.interface, []).append(str(each.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {POD_INTERFACES[interface][0]}: {POD_INTERFACES[interface][1]}"
        for interface, addresses in sorted(found.items())
    )
