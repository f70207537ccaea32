"""What is done for each LoadBalancer Service: whether it is relayed, and why."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import LoadBalancerDecision, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Service, Snapshot
from nodeagent.plan.address_rules import address_rules, first_at, publications
from nodeagent.plan.capacity import share_out
from nodeagent.plan.detection.decision import LISTED, detect
from nodeagent.plan.eligibility import Refusal, examine
from nodeagent.plan.precedence import by_precedence, listed_paths
from nodeagent.plan.relaying import ExistingRelay, OwnRelay, Relayed


class LoadBalancerPlan(Struct, frozen=True):
    """One load balancer, decided.

    Attributes:
        service: the Service.
        proxy: whether it sends the PROXY header, served or not.
        decision: what is done for it, and why.
        rank: its place by precedence among all load balancers; 0 comes first.
        own_addresses: those of its addresses at which it comes first: hostnames that DNS leads there are its.
        relayed: what this node has for it.
        hosts_addresses: what hosts lines for its hostnames point at; empty if not all of it is relayed.
        without_lines: code and reason why a served one has no hosts lines; empty if it can have them.
    """

    service: Service
    proxy: bool
    decision: LoadBalancerDecision
    rank: int
    own_addresses: tuple[IPAddress, ...] = ()
    relayed: Relayed = Relayed()
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
    """Decide for each LoadBalancer Service; the result is sorted by namespace/name. Pure."""
    decisions = _Decisions(snapshot, facts, config)
    plans = (decisions.of(service, rank) for rank, service in enumerate(decisions.services))
    return tuple(sorted(plans, key=lambda plan: plan.service.ref))


class _Decisions:
    """Decides for one Service after the other, knowing all of them; `services` are in order of precedence."""

    def __init__(self, snapshot: Snapshot, facts: Facts, config: Config) -> None:
        self.services = by_precedence(snapshot.services, config)
        listed = listed_paths(config)
        self._detections = {
            service.ref: detect(service, config.load_balancers, snapshot.node, snapshot.config_maps)
            for service in self.services
        }
        self._published = publications(self.services, listed)
        self._rules = address_rules(snapshot, facts, config)
        self._examined = {
            service.ref: examine(service, found.versions, self._rules, listed=found.code == LISTED)
            for service in self.services
            if (found := self._detections[service.ref]).proxy
        }
        self._relay: ExistingRelay | OwnRelay
        if config.relay.kind == "service":
            self._relay = ExistingRelay(snapshot, facts, config, self._published, self._examined)
        else:
            reserved = [each for each in self.services if self._detections[each.ref].reserved]
            capacity = share_out(reserved, self._published, self._rules, config, listed)
            self._relay = OwnRelay(snapshot, facts, config, self._published, capacity)

    def of(self, service: Service, rank: int) -> LoadBalancerPlan:
        """Return what is done for the Service, which has this place among all."""
        detection = self._detections[service.ref]
        found = self._examined.get(service.ref)
        if found is None:
            remarks = (*service.problems, *detection.remarks)
            found = Refusal(detection.verdict, detection.code, detection.reason, remarks)
        if isinstance(found, Refusal):
            return self._refused(service, rank, found)
        relayed = self._relay.relayed(service, detection.versions, found)
        if isinstance(relayed, Refusal):
            return self._refused(service, rank, relayed)
        shared = self._sharing(service.ref, found.addresses)
        addresses = tuple(dict.fromkeys((*service.load_balancer_ips, *found.addresses)))
        decision = LoadBalancerDecision(
            service.ref,
            Verdict.SERVED,
            detection.code,
            detection.reason,
            addresses=addresses,
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
            rank=rank,
            own_addresses=self._own(service, addresses),
            relayed=relayed,
            hosts_addresses=() if shared else relayed.hosts_addresses,
            without_lines=without_lines,
        )

    def _refused(self, service: Service, rank: int, refusal: Refusal) -> LoadBalancerPlan:
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
        return LoadBalancerPlan(
            service,
            proxy=self._detections[service.ref].proxy,
            decision=decision,
            rank=rank,
            own_addresses=self._own(service, service.load_balancer_ips),
        )

    def _own(self, service: Service, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
        """Return the addresses at which it comes first and that may be its own."""
        return tuple(
            address
            for address in dict.fromkeys(addresses)
            if first_at(self._published, address) == service.ref and not self._rules.never(address)
        )

    def _sharing(self, ref: ObjectRef, addresses: Iterable[IPAddress]) -> str:
        """Why hostnames at these addresses are not written for this Service; empty if they are."""
        for address in addresses:
            first = first_at(self._published, address)
            if first is not None and first != ref:
                return (
                    f"{address}: {first}, which is listed or older, publishes this address, too: hostnames "
                    "get no hosts lines for this Service, DNAT alone serves it; list a Service in "
                    "loadBalancers.services to put it first"
                )
        return ""
