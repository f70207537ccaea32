"""What is done for each LoadBalancer Service: whether it is relayed, and why."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.decisions import Conclusion, DecisionStatus, LoadBalancerDecision, skipped, some_notes
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Service, Snapshot
from nodeagent.plan.balancers.capacity import share_out, too_large
from nodeagent.plan.balancers.eligibility import Eligible, Owners, Unserved, examine, own_hostnames
from nodeagent.plan.balancers.existing_relay import ExistingRelay
from nodeagent.plan.balancers.relaying import OwnRelay, RelayPlan
from nodeagent.plan.balancers.this_node import AddressRules
from nodeagent.plan.identity.identify import cloud_of, identify


class LoadBalancerPlan(Struct, frozen=True):
    """One load balancer, decided.

    Attributes:
        proxy: it sends the PROXY header, served or not. `listed`: loadBalancers.services names it.
        rank: its place by precedence among all load balancers; 0 comes first.
        own_addresses: those of its addresses at which it comes first: hostnames that DNS leads there are its.
        at_nodes: it publishes addresses of this node, so DNS leads there for the node's own hostnames, too.
        relay: what this node does for it; None if nothing.
        hosts_addresses: what hosts lines for its hostnames point at; empty if not all of it is relayed.
        without_lines: why a served one has no hosts lines; None if it can have them.
        own_names: the hostnames by which it is served; `own_addresses` are what DNS answers for them.
        unresolved: why nothing is known of these: empty if DNS was not queried yet. None if something is.
    """

    service: Service
    proxy: bool
    listed: bool
    decision: LoadBalancerDecision
    rank: int
    own_addresses: tuple[IPAddress, ...] = ()
    at_nodes: bool = False
    relay: RelayPlan | None = None
    hosts_addresses: tuple[IPAddress, ...] = ()
    without_lines: Conclusion | None = None
    own_names: tuple[str, ...] = ()
    unresolved: str | None = None

    @property
    def is_served(self) -> bool:
        """Whether it is relayed on this node."""
        return self.decision.status is DecisionStatus.SERVED


class LoadBalancerPlanner:
    """Remembers the decisions on all load balancers, and what they depended on."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rested_on: tuple[object, ...] = ()
        self._plans: tuple[LoadBalancerPlan, ...] = ()

    def plan(self, snapshot: Snapshot, facts: Facts) -> tuple[LoadBalancerPlan, ...]:
        """Return the decisions, sorted by namespace/name; what is decided as before stays the same object."""
        own_names = chain(*own_hostnames(snapshot.services, self._config).values())
        rests_on = (
            snapshot.services,
            snapshot.node,
            snapshot.service_ranges,
            snapshot.other_cluster_ips,
            snapshot.relay_service,
            snapshot.relay_endpoints,
            # Nothing here is about single hostnames but the load balancers' own.
            replace(facts, user_names={}, standing_names={}, standing_at={}, dns={}),
            {name: facts.dns.get(name) for name in own_names},
        )
        if rests_on != self._rested_on:
            previous = {plan.service.ref: plan for plan in self._plans}
            owners = Owners(snapshot.services, self._config)
            decisions = _Decisions(snapshot, facts, self._config, owners)
            decided = [decisions.of(service, rank) for rank, service in enumerate(owners.services)]
            plans = tuple(
                previous[plan.service.ref] if previous.get(plan.service.ref) == plan else plan
                for plan in sorted(decided, key=lambda plan: plan.service.ref)
            )
            self._rested_on = rests_on
            if plans != self._plans:
                self._plans = plans
        return self._plans


class _Decisions:
    """Decides for one Service after the other, knowing all of them."""

    def __init__(self, snapshot: Snapshot, facts: Facts, config: Config, owners: Owners) -> None:
        self._owners, services = owners, owners.services
        provider_id = cloud_of(snapshot)
        self._identities = {
            service.ref: identify(service, config.load_balancers, provider_id) for service in services
        }
        oversized = {
            service.ref: Unserved(conclusion, service.problems)
            for service in services
            if service.ref.path not in owners.listed and (conclusion := too_large(service, config.limits))
        }
        self._rules = AddressRules(snapshot, facts, config)
        self._dns = facts.dns
        examined = {
            service.ref: oversized.get(service.ref) or examine(service, identity, owners, self._rules)
            for service in services
            if (identity := self._identities[service.ref]).proxy
        }
        self._eligible = {ref: result for ref, result in examined.items() if isinstance(result, Eligible)}
        self._relays: dict[ObjectRef, RelayPlan | Unserved]
        self._relays = {ref: result for ref, result in examined.items() if isinstance(result, Unserved)}
        if config.relay.kind == "service":
            self._relays |= ExistingRelay(snapshot, facts, config, owners).plans(self._eligible)
        else:
            claiming = (service for service in services if self._identities[service.ref].reserved)
            reserved = [service for service in claiming if service.ref not in oversized]
            capacity = share_out(reserved, owners, self._rules, config)
            own_relay = OwnRelay(snapshot, facts, config, owners, capacity)
            for service in services:
                if eligible := self._eligible.get(service.ref):
                    versions = self._identities[service.ref].versions
                    self._relays[service.ref] = own_relay.plan(service, versions, eligible)

    def of(self, service: Service, rank: int) -> LoadBalancerPlan:
        """Return what is done for the Service, which has this place among all."""
        identity = self._identities[service.ref]
        no_proxy = Unserved(identity.conclusion, (*service.problems, *identity.remarks))
        relay = self._relays.get(service.ref, no_proxy)
        owners, never = self._owners, self._rules.never
        listed = service.ref.path in owners.listed
        decision = LoadBalancerDecision(
            service.ref,
            relay.conclusion if isinstance(relay, Unserved) else identity.conclusion,
            addresses=service.load_balancer_ips,
            relay_addresses=() if isinstance(relay, Unserved) else relay.shown_at,
            remarks=some_notes(relay.remarks),
            uid=service.uid,
            taken=some_notes(relay.taken),
        )
        if isinstance(relay, Unserved):
            return LoadBalancerPlan(service, identity.proxy, listed, decision, rank)
        eligible = self._eligible[service.ref]
        addresses = tuple(dict.fromkeys((*service.load_balancer_ips, *eligible.addresses)))
        own = tuple(ip for ip in addresses if owners.first_at(ip) == service.ref and not never(ip))
        unresolved = None
        if own_names := owners.hostnames.get(service.ref, ()):
            answers = [self._dns[name] for name in own_names if name in self._dns]
            replies = [answer.last_conclusive for answer in answers if answer.last_conclusive]
            if not replies:
                unresolved = next((answer.latest.trouble for answer in answers), "")
            # No rule forbids what DNS gives, and no other listed Service publishes it.
            resolved = dict.fromkeys(address for reply in replies for address in reply.addresses)
            first = {ip: owners.first_at(ip) for ip in resolved if not never(ip)}
            own = tuple(ip for ip, ref in first.items() if ref is None or ref.path not in owners.listed)
            addresses = own
        shared = "" if own_names else self._sharing(service, eligible.addresses)
        without_lines = skipped("SharedAddress", shared) if shared else None
        if not (shared or relay.hosts_addresses):
            reason = f"not all ports of {service.ref} are relayed: DNAT alone serves those that are"
            if not eligible.wholly:
                reason += "; loadBalancers.services gives a Service hosts lines despite a UDP port"
            without_lines = skipped("PartlyRelayed", reason)
        remarks = (*identity.remarks, *relay.remarks, *((shared,) if shared else ()))
        return LoadBalancerPlan(
            service,
            proxy=True,
            listed=listed,
            decision=replace(decision, addresses=addresses, remarks=some_notes(remarks)),
            rank=rank,
            own_addresses=own,
            at_nodes=not self._rules.own.isdisjoint(addresses),
            relay=relay,
            hosts_addresses=() if shared else relay.hosts_addresses,
            without_lines=without_lines,
            own_names=own_names,
            unresolved=unresolved,
        )

    def _sharing(self, service: Service, addresses: Iterable[IPAddress]) -> str:
        """Why hostnames, which carry every port, also UDP, are not written for it; empty if they are."""
        for address in addresses:
            first = self._owners.first_at(address)
            if first not in {None, service.ref}:
                return (
                    f"{address}: {first}, which is listed or older, publishes this address, too: hostnames "
                    "get no hosts lines for this Service, DNAT alone serves it; list a Service in "
                    "loadBalancers.services to put it first"
                )
        return ""
