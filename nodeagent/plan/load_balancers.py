"""What is done for each LoadBalancer Service: whether it is relayed, and why."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Listener, LoadBalancerDecision, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service, Snapshot
from nodeagent.plan.ages import by_age
from nodeagent.plan.detection.decision import LISTED, Detection, detect
from nodeagent.plan.eligibility import Eligible, Refusal, Terms, examine
from nodeagent.plan.families import unspoken_families
from nodeagent.plan.ip_mode import IPModePolicy
from nodeagent.plan.relay_addresses import allocate
from nodeagent.plan.relay_service import RelaySurroundings, relay_by_service
from nodeagent.plan.relaying import Relayed, Surroundings, relay


@dataclass(frozen=True, slots=True)
class LoadBalancerPlan:
    """One load balancer, decided. `proxy` tells whether it sends the PROXY line, served or not.

    `names_at` is what hosts lines for its names point at; nothing where not all of it is relayed.
    """

    service: Service
    proxy: bool
    decision: LoadBalancerDecision
    relay_addresses: tuple[RelayAddress, ...] = ()
    listeners: tuple[Listener, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    names_at: tuple[IPAddress, ...] = ()


def decide_load_balancers(snapshot: Snapshot, facts: Facts, config: Config) -> tuple[LoadBalancerPlan, ...]:
    """Decides for every LoadBalancer Service; the result is sorted by namespace/name."""
    services = sorted(snapshot.services, key=by_age)
    detections = {
        service.ref: detect(service, config.load_balancers, snapshot.node, snapshot.config_maps)
        for service in services
    }
    terms = _terms(snapshot, facts, config)
    examined = {
        service.ref: examine(service, found.versions, terms, listed=found.code == LISTED)
        for service in services
        if (found := detections[service.ref]).proxy
    }
    reserved = [service for service in services if detections[service.ref].reserved]
    relay = _relay_for(snapshot, facts, config, reserved, examined)
    plans = [
        _decide(service, detections[service.ref], examined.get(service.ref), relay) for service in services
    ]
    return tuple(sorted(plans, key=lambda plan: plan.service.ref))


_Relay = Callable[[Service, Mapping[int, ProxyVersion], Eligible], Relayed | Refusal]


def _relay_for(
    snapshot: Snapshot,
    facts: Facts,
    config: Config,
    reserved: Sequence[Service],
    examined: Mapping[ObjectRef, Eligible | Refusal],
) -> _Relay:
    """How one load balancer is relayed, by the kind of relay that the configuration asks for."""
    claims = _claims(examined)
    if config.relay.kind == "service":
        shared = RelaySurroundings(
            name=config.relay.service,
            service=snapshot.relay_service,
            endpoints=snapshot.relay_endpoints,
            proxies=sum(isinstance(found, Eligible) for found in examined.values()),
            claims=claims,
            facts=facts,
        )
        return lambda service, _, eligible: relay_by_service(service.ref, eligible, shared)
    around = Surroundings(
        relay_addresses={
            4: allocate(reserved, config.relay.ipv4),
            6: allocate(reserved, config.relay.ipv6),
        },
        claims=claims,
        source_addresses=_source_addresses(snapshot, facts),
        unspoken=unspoken_families(snapshot, facts),
        facts=facts,
        options=config.relay,
    )
    return lambda service, versions, eligible: relay(service, versions, eligible, around)


def _decide(
    service: Service, detection: Detection, examined: Eligible | Refusal | None, relay: _Relay
) -> LoadBalancerPlan:
    if examined is None:
        remarks = (*service.problems, *detection.remarks)
        refusal = Refusal(detection.verdict, detection.code, detection.reason, remarks)
        return _refused(service, refusal, proxy=False)
    if isinstance(examined, Refusal):
        return _refused(service, examined, proxy=True)
    relayed = relay(service, detection.versions, examined)
    if isinstance(relayed, Refusal):
        return _refused(service, relayed, proxy=True)
    decision = LoadBalancerDecision(
        service.ref,
        Verdict.SERVED,
        detection.code,
        detection.reason,
        addresses=tuple(dict.fromkeys((*service.load_balancer_ips, *examined.addresses))),
        relay_addresses=relayed.shown_at,
        remarks=(*detection.remarks, *relayed.remarks),
        uid=service.uid,
        taken=relayed.taken,
    )
    return LoadBalancerPlan(
        service,
        proxy=True,
        decision=decision,
        relay_addresses=relayed.relay_addresses,
        listeners=relayed.listeners,
        redirects=relayed.redirects,
        names_at=relayed.names_at,
    )


def _refused(service: Service, refusal: Refusal, *, proxy: bool) -> LoadBalancerPlan:
    decision = LoadBalancerDecision(
        service.ref,
        refusal.verdict,
        refusal.code,
        refusal.reason,
        addresses=service.load_balancer_ips,
        remarks=refusal.remarks,
        uid=service.uid,
        taken=refusal.taken,
    )
    return LoadBalancerPlan(service, proxy=proxy, decision=decision)


def _terms(snapshot: Snapshot, facts: Facts, config: Config) -> Terms:
    own = {each.address for each in facts.addresses if not each.ours}
    own |= {endpoint.address for endpoint in facts.api_servers}
    own |= set(snapshot.node.addresses if snapshot.node else ())
    return Terms(
        relay_ranges=(config.relay.ipv4, config.relay.ipv6),
        ip_mode=IPModePolicy(config.load_balancers.ip_mode, facts.short_circuited),
        own_addresses=frozenset(own),
    )


def _claims(examined: Mapping[ObjectRef, Eligible | Refusal]) -> dict[Endpoint, ObjectRef]:
    """The oldest Service for each address and port; `examined` is in order of age."""
    claims: dict[Endpoint, ObjectRef] = {}
    for ref, found in examined.items():
        if isinstance(found, Eligible):
            for endpoint in (*found.endpoints, *found.plain_endpoints):
                claims.setdefault(endpoint, ref)
    return claims


def _source_addresses(snapshot: Snapshot, facts: Facts) -> dict[int, IPAddress]:
    """This node's address a family: its Node object's first, else the one outgoing connections bear."""
    reported: Iterable[IPAddress] = snapshot.node.addresses if snapshot.node else ()
    found: dict[int, IPAddress] = {}
    for address in (*reported, *facts.source_addresses):
        found.setdefault(address.version, address)
    return found
