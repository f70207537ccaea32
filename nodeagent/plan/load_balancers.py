"""What is done for each LoadBalancer Service: whether it is relayed, and why."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Listener, LoadBalancerDecision, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service, Snapshot
from nodeagent.plan.address_rules import AddressRules, Publications, address_rules, publications
from nodeagent.plan.capacity import Capacity, share_out
from nodeagent.plan.detection.decision import LISTED, Detection, detect
from nodeagent.plan.eligibility import Eligible, IPModePolicy, Refusal, Terms, examine, unsupported_families
from nodeagent.plan.precedence import by_precedence, listed_paths
from nodeagent.plan.relay_service import RelayServiceContext, relay_by_service
from nodeagent.plan.relaying import RelayContext, Relayed, relay


class LoadBalancerPlan(Struct, frozen=True):
    """One load balancer, decided.

    Attributes:
        service: the Service.
        proxy: whether it sends the PROXY header, served or not.
        decision: what is done for it, and why.
        rank: its place by precedence among all load balancers; 0 comes first.
        own_addresses: those of its addresses at which it comes first: hostnames that DNS leads there are its.
        relay_addresses: the addresses of its relay on this node.
        listeners: what the relay listens on for it.
        redirects: what is sent to the relay.
        hosts_addresses: what hosts lines for its hostnames point at; empty if not all of it is relayed.
        without_lines: code and reason why a served one has no hosts lines; empty if it can have them.
    """

    service: Service
    proxy: bool
    decision: LoadBalancerDecision
    rank: int
    own_addresses: tuple[IPAddress, ...] = ()
    relay_addresses: tuple[RelayAddress, ...] = ()
    listeners: tuple[Listener, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    hosts_addresses: tuple[IPAddress, ...] = ()
    without_lines: tuple[str, str] = ("", "")

    @property
    def is_served(self) -> bool:
        """Whether it is relayed on this node."""
        return self.decision.verdict is Verdict.SERVED


class LoadBalancerPlanner:
    """Remembers the decisions on all load balancers, and what they depended on.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rested_on: tuple[object, ...] = ()
        self._plans: tuple[LoadBalancerPlan, ...] = ()

    def plan(self, snapshot: Snapshot, facts: Facts) -> tuple[LoadBalancerPlan, ...]:
        """Return the decisions; what is decided as before stays the same object."""
        rests_on = (
            snapshot.services,
            snapshot.node,
            snapshot.config_maps,
            snapshot.service_ranges,
            snapshot.relay_service,
            snapshot.relay_endpoints,
            # Nothing here is about single hostnames.
            replace(facts, user_names={}, standing_names={}, wanted_names={}, dns={}),
        )
        if rests_on != self._rested_on:
            known = {plan.service.ref: plan for plan in self._plans}
            plans = tuple(
                known[plan.service.ref] if known.get(plan.service.ref) == plan else plan
                for plan in decide_load_balancers(snapshot, facts, self._config)
            )
            self._rested_on = rests_on
            if plans != self._plans:
                self._plans = plans
        return self._plans


def decide_load_balancers(snapshot: Snapshot, facts: Facts, config: Config) -> tuple[LoadBalancerPlan, ...]:
    """Decide for every LoadBalancer Service; the result is sorted by namespace/name."""
    services = by_precedence(snapshot.services, config)
    listed = listed_paths(config)
    detections = {
        service.ref: detect(service, config.load_balancers, snapshot.node, snapshot.config_maps)
        for service in services
    }
    published = publications(services, listed)
    rules = address_rules(snapshot, facts, config)
    terms = Terms(rules, IPModePolicy(config.load_balancers.ip_mode, facts.short_circuited))
    examined = {
        service.ref: examine(service, found.versions, terms, listed=found.code == LISTED)
        for service in services
        if (found := detections[service.ref]).proxy
    }
    if config.relay.kind == "service":
        relay = _by_relay_service(snapshot, facts, config, published, examined)
    else:
        reserved = [service for service in services if detections[service.ref].reserved]
        capacity = share_out(reserved, published, rules, config, listed)
        relay = _by_own_relay(snapshot, facts, config, published, capacity)
    plans = [
        _decide(_Question(service, rank, detections[service.ref], published, rules), examined, relay)
        for rank, service in enumerate(services)
    ]
    return tuple(sorted(plans, key=lambda plan: plan.service.ref))


_Relay = Callable[[Service, Mapping[int, ProxyVersion], Eligible], Relayed | Refusal]


def _by_own_relay(
    snapshot: Snapshot, facts: Facts, config: Config, published: Publications, capacity: Capacity
) -> _Relay:
    context = RelayContext(
        relay_addresses=capacity.relay_addresses,
        published=published,
        allowed_ports=frozenset(config.load_balancers.allow_ports),
        source_addresses=_source_addresses(snapshot, facts),
        unsupported=unsupported_families(snapshot, facts),
        facts=facts,
        options=config.relay,
    )

    def decide(
        service: Service, versions: Mapping[int, ProxyVersion], eligible: Eligible
    ) -> Relayed | Refusal:
        refusal = capacity.refusals.get(service.ref)
        if refusal is not None:
            return Refusal(refusal.verdict, refusal.code, refusal.reason, eligible.remarks)
        return relay(service, versions, eligible, context)

    return decide


def _by_relay_service(
    snapshot: Snapshot,
    facts: Facts,
    config: Config,
    published: Publications,
    examined: Mapping[ObjectRef, Eligible | Refusal],
) -> _Relay:
    """Give the relay Service to the first by precedence that can be relayed.

    `examined` is in that order.
    """
    context = RelayServiceContext(
        name=config.relay.service,
        service=snapshot.relay_service,
        endpoints=snapshot.relay_endpoints,
        published=published,
        facts=facts,
    )
    relayed = {
        ref: relay_by_service(ref, eligible, context)
        for ref, eligible in examined.items()
        if isinstance(eligible, Eligible)
    }
    holder = next((ref for ref, found in relayed.items() if isinstance(found, Relayed)), None)

    def decide(service: Service, _: Mapping[int, ProxyVersion], eligible: Eligible) -> Relayed | Refusal:
        found = relayed[service.ref]
        if isinstance(found, Refusal) or holder == service.ref:
            return found
        reason = (
            f"the relay Service {config.relay.service.path} serves one load balancer, and that is {holder}, "
            "which is listed or older: loadBalancers.services chooses; relay.kind: node serves all of them"
        )
        return Refusal(Verdict.SKIPPED, "RelayTaken", reason, eligible.remarks)

    return decide


class _Question(Struct, frozen=True):
    """One Service, its place among all, and what is known of it."""

    service: Service
    rank: int
    detection: Detection
    published: Publications
    rules: AddressRules

    @property
    def own_addresses(self) -> tuple[IPAddress, ...]:
        """The addresses of its status at which it comes first and that may be its own."""
        return tuple(
            address
            for address in dict.fromkeys(self.service.load_balancer_ips)
            if self.published.first(address) == self.service.ref and not self.rules.never(address)
        )


def _decide(
    question: _Question, examined: Mapping[ObjectRef, Eligible | Refusal], relay: _Relay
) -> LoadBalancerPlan:
    service, detection = question.service, question.detection
    found = examined.get(service.ref)
    if found is None:
        remarks = (*service.problems, *detection.remarks)
        return _refused(question, Refusal(detection.verdict, detection.code, detection.reason, remarks))
    if isinstance(found, Refusal):
        return _refused(question, found, proxy=True)
    relayed = relay(service, detection.versions, found)
    if isinstance(relayed, Refusal):
        return _refused(question, relayed, proxy=True)
    shared = _sharing(service.ref, found.addresses, question.published)
    decision = LoadBalancerDecision(
        service.ref,
        Verdict.SERVED,
        detection.code,
        detection.reason,
        addresses=tuple(dict.fromkeys((*service.load_balancer_ips, *found.addresses))),
        relay_addresses=relayed.shown_at,
        remarks=(*detection.remarks, *relayed.remarks, *((shared,) if shared else ())),
        uid=service.uid,
        taken=relayed.taken,
    )
    without_lines = ("SharedAddress", shared) if shared else ("", "")
    if not shared and not relayed.hosts_addresses:
        reason = f"not all ports of {service.ref} are relayed: DNAT alone serves those that are"
        without_lines = ("PartlyRelayed", reason)
    return LoadBalancerPlan(
        service,
        proxy=True,
        decision=decision,
        rank=question.rank,
        own_addresses=tuple(
            dict.fromkeys(
                (
                    *question.own_addresses,
                    *(each for each in found.addresses if question.published.first(each) == service.ref),
                )
            )
        ),
        relay_addresses=relayed.relay_addresses,
        listeners=relayed.listeners,
        redirects=relayed.redirects,
        hosts_addresses=() if shared else relayed.hosts_addresses,
        without_lines=without_lines,
    )


def _sharing(ref: ObjectRef, addresses: Iterable[IPAddress], published: Publications) -> str:
    """Why hostnames at these addresses are not written for this Service; empty if they are."""
    for address in addresses:
        before = published.before(ref, address)
        if before is not None:
            return (
                f"{address}: {before}, which is listed or older, publishes this address, too: hostnames get "
                "no hosts lines for this Service, DNAT alone serves it; list a Service in "
                "loadBalancers.services to put it first"
            )
    return ""


def _refused(question: _Question, refusal: Refusal, *, proxy: bool = False) -> LoadBalancerPlan:
    decision = LoadBalancerDecision(
        question.service.ref,
        refusal.verdict,
        refusal.code,
        refusal.reason,
        addresses=question.service.load_balancer_ips,
        remarks=refusal.remarks,
        uid=question.service.uid,
        taken=refusal.taken,
    )
    return LoadBalancerPlan(
        question.service,
        proxy=proxy,
        decision=decision,
        rank=question.rank,
        own_addresses=question.own_addresses,
    )


def _source_addresses(snapshot: Snapshot, facts: Facts) -> dict[int, IPAddress]:
    """Return this node's address per family: its Node object's first, else that of outgoing connections."""
    reported: Iterable[IPAddress] = snapshot.node.addresses if snapshot.node else ()
    found: dict[int, IPAddress] = {}
    for address in (*reported, *facts.source_addresses):
        found.setdefault(address.version, address)
    return found
