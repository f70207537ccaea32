"""What is done for each LoadBalancer Service: whether it is relayed, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Listener, LoadBalancerDecision, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Service, Snapshot
from nodeagent.plan.ages import by_age
from nodeagent.plan.detection import Detection, detect
from nodeagent.plan.eligibility import Eligible, Refusal, examine
from nodeagent.plan.relay_addresses import allocate
from nodeagent.plan.relaying import Surroundings, relay


@dataclass(frozen=True, slots=True)
class LoadBalancerPlan:
    """One load balancer, decided. `proxy` tells whether it sends the PROXY line, served or not."""

    service: Service
    proxy: bool
    decision: LoadBalancerDecision
    relay_addresses: tuple[RelayAddress, ...] = ()
    listeners: tuple[Listener, ...] = ()
    redirects: tuple[Redirect, ...] = ()


def decide_load_balancers(snapshot: Snapshot, facts: Facts, config: Config) -> tuple[LoadBalancerPlan, ...]:
    """Decides for every LoadBalancer Service; the result is sorted by namespace/name."""
    services = sorted(snapshot.services, key=by_age)
    detections = {service.ref: detect(service, config.load_balancers) for service in services}
    proxies = [service for service in services if detections[service.ref].version]
    examined = {service.ref: examine(service) for service in proxies}
    around = Surroundings(
        relay_addresses={
            4: allocate(proxies, config.relay.ipv4),
            6: allocate(proxies, config.relay.ipv6),
        },
        claims=_claims(examined),
        source_addresses=_source_addresses(snapshot, facts),
        facts=facts,
        options=config.relay,
    )
    plans = [
        _decide(service, detections[service.ref], examined.get(service.ref), around) for service in services
    ]
    return tuple(sorted(plans, key=lambda plan: plan.service.ref))


def _decide(
    service: Service, detection: Detection, examined: Eligible | Refusal | None, around: Surroundings
) -> LoadBalancerPlan:
    if detection.version is None or examined is None:
        refusal = Refusal(Verdict.SKIPPED, detection.code, detection.reason, service.problems)
        return _refused(service, refusal, proxy=False)
    if isinstance(examined, Refusal):
        return _refused(service, examined, proxy=True)
    relayed = relay(service, detection.version, examined, around)
    if isinstance(relayed, Refusal):
        return _refused(service, relayed, proxy=True)
    decision = LoadBalancerDecision(
        service.ref,
        Verdict.SERVED,
        detection.code,
        detection.reason,
        addresses=service.load_balancer_ips,
        relay_addresses=tuple(relay_address.address for relay_address in relayed.relay_addresses),
        remarks=relayed.remarks,
    )
    return LoadBalancerPlan(
        service,
        proxy=True,
        decision=decision,
        relay_addresses=relayed.relay_addresses,
        listeners=relayed.listeners,
        redirects=relayed.redirects,
    )


def _refused(service: Service, refusal: Refusal, *, proxy: bool) -> LoadBalancerPlan:
    decision = LoadBalancerDecision(
        service.ref,
        refusal.verdict,
        refusal.code,
        refusal.reason,
        addresses=service.load_balancer_ips,
        remarks=refusal.remarks,
    )
    return LoadBalancerPlan(service, proxy=proxy, decision=decision)


def _claims(examined: Mapping[ObjectRef, Eligible | Refusal]) -> dict[Endpoint, ObjectRef]:
    """The oldest Service for each address and port; `examined` is in order of age."""
    claims: dict[Endpoint, ObjectRef] = {}
    for ref, found in examined.items():
        if isinstance(found, Eligible):
            for endpoint in found.endpoints:
                claims.setdefault(endpoint, ref)
    return claims


def _source_addresses(snapshot: Snapshot, facts: Facts) -> dict[int, IPAddress]:
    """This node's address a family: its Node object's first, else the one outgoing connections bear."""
    reported: Iterable[IPAddress] = snapshot.node.addresses if snapshot.node else ()
    found: dict[int, IPAddress] = {}
    for address in (*reported, *facts.source_addresses):
        found.setdefault(address.version, address)
    return found
