"""plan(): the one decision, made of the decisions in the modules beside it."""

from collections.abc import Iterable
from dataclasses import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Desired, DnatRules, RelayAddress
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ControllerRoute, Gateway, Ingress, Route, Snapshot
from nodeagent.plan.claims.collecting import claims_of
from nodeagent.plan.hostname_decisions import decide_names, hosts_lines
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.load_balancers import decide_load_balancers
from nodeagent.plan.pod_ranges import pod_ranges


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Pure and deterministic: the same input in any order gives the same value."""
    facts = _with_node_names(snapshot, facts)
    load_balancers = decide_load_balancers(snapshot, facts, config)
    names = decide_names(claims_of(snapshot), load_balancers, facts, config)
    pods = pod_ranges(snapshot, facts, config)
    dnat = config.dnat.backend != "none"
    addresses = tuple(address for plan in load_balancers for address in plan.relay_addresses)
    guarded = _guarded(config, addresses)
    return Desired(
        addresses=addresses,
        listeners=tuple(listener for plan in load_balancers for listener in plan.listeners),
        dnat=DnatRules(
            tuple(redirect for plan in load_balancers for redirect in plan.redirects) if dnat else (),
            pods.redirected,
            guarded,
            pods.admitted if guarded else (),
        ),
        hosts=hosts_lines(names, load_balancers),
        load_balancers=tuple(plan.decision for plan in load_balancers),
        names=names,
        unreadable=tuple(sorted(snapshot.unreadable)),
        remarks=(*facts.notes, *pods.remarks, *sorted(snapshot.not_covered), *_problems(snapshot)),
    )


def _with_node_names(snapshot: Snapshot, facts: Facts) -> Facts:
    """The node's own names are those of its Node object, too: none of them is ever written."""
    if snapshot.node is None:
        return facts
    return replace(facts, node_names=facts.node_names | {canonical(name) for name in snapshot.node.names})


def _problems(snapshot: Snapshot) -> list[str]:
    objects: tuple[Ingress | Gateway | Route | ControllerRoute, ...] = (
        *snapshot.ingresses,
        *snapshot.gateways,
        *snapshot.routes,
        *snapshot.controller_routes,
    )
    return sorted(f"{found.ref}: {problem}" for found in objects for problem in found.problems)


def _guarded(config: Config, addresses: Iterable[RelayAddress]) -> tuple[IPNetwork, ...]:
    """The relay's whole ranges, of the families in use: nobody else may reach what listens there."""
    used = {address.address.version for address in addresses}
    relay = config.relay
    return tuple(network for network in (relay.ipv4, relay.ipv6) if network.version in used)
