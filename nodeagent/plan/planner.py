"""The complete decision, made of the decisions in the other modules."""

from collections.abc import Iterable
from dataclasses import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Desired, DnatRules, LoadBalancerDecision, RelayAddress
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.claims.collecting import ClaimCollector
from nodeagent.plan.hostname_decisions import HostnameDecisions
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.load_balancer_lookup import LoadBalancerLookup
from nodeagent.plan.load_balancers import LoadBalancerPlan, LoadBalancerPlanner
from nodeagent.plan.pod_ranges import pod_ranges


class Planner:
    """Decides, and remembers its last decisions: what has not changed since is not decided again.

    The result depends only on the input, not on what it remembers. For two equal decisions, it returns the
    same object, so that others find changes as cheaply.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._claims = ClaimCollector(config.limits)
        self._load_balancers = LoadBalancerPlanner(config)
        self._lookup = LoadBalancerLookup(config.load_balancers.ingress_classes)
        self._hostnames = HostnameDecisions(config)
        self._relayed = _Relayed((), ())

    def plan(self, snapshot: Snapshot, facts: Facts) -> Desired:
        """Return the desired state of the node; the same input in any order gives an equal value."""
        config = self._config
        facts = _with_node_names(snapshot, facts)
        load_balancers = self._load_balancers.plan(snapshot, facts)
        removed, added = self._lookup.update(load_balancers, *self._claims.update(snapshot))
        hostnames = self._hostnames
        hostnames.update(removed, added, load_balancers, facts)
        if load_balancers is not self._relayed.plans:
            self._relayed = _Relayed(load_balancers, self._relayed.decisions)
        relayed = self._relayed
        of_gateways = (f"{one.ref}: {problem}" for one in snapshot.gateways for problem in one.problems)
        pods = pod_ranges(snapshot, facts, config)
        guarded = _guarded(config, relayed.addresses)
        return Desired(
            addresses=relayed.addresses,
            listeners=relayed.listeners,
            dnat=DnatRules(
                relayed.redirects if config.dnat.backend != "none" else (),
                pods.redirected,
                guarded,
                pods.admitted if guarded else (),
            ),
            hosts=hostnames.hosts,
            load_balancers=relayed.decisions,
            names=hostnames.names,
            unreadable=tuple(sorted(snapshot.unreadable)),
            remarks=(
                *facts.notes,
                *pods.remarks,
                *sorted(snapshot.not_covered),
                *sorted([*of_gateways, *self._claims.problems()]),
            ),
            questions=hostnames.questions,
        )


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Return the desired state, decided from the beginning. Pure."""
    return Planner(config).plan(snapshot, facts)


class _Relayed:
    """The results for all load balancers, computed once for the same ones."""

    def __init__(self, plans: tuple[LoadBalancerPlan, ...], before: tuple[LoadBalancerDecision, ...]) -> None:
        self.plans = plans
        self.addresses = tuple(address for plan in plans for address in plan.relayed.relay_addresses)
        self.listeners = tuple(listener for plan in plans for listener in plan.relayed.listeners)
        self.redirects = tuple(redirect for plan in plans for redirect in plan.relayed.redirects)
        decisions = tuple(plan.decision for plan in plans)
        # A Service can change without its decision.
        self.decisions = before if decisions == before else decisions


def _with_node_names(snapshot: Snapshot, facts: Facts) -> Facts:
    """Add the names of the Node object to the node's own names: none of them is ever written."""
    if snapshot.node is None:
        return facts
    return replace(facts, node_names=facts.node_names | {canonical(name) for name in snapshot.node.names})


def _guarded(config: Config, addresses: Iterable[RelayAddress]) -> tuple[IPNetwork, ...]:
    """Return the relay's whole ranges, of the families in use: no other host may reach what listens there."""
    used = {address.address.version for address in addresses}
    relay = config.relay
    return tuple(network for network in (relay.ipv4, relay.ipv6) if network.version in used)
