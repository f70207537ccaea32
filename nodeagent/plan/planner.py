"""plan(): the one decision, made of the decisions in the modules beside it."""

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.claims.collecting import claims_of
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.load_balancers import decide_load_balancers
from nodeagent.plan.names import decide_names, hosts_lines


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Pure and deterministic: the same input in any order gives the same value."""
    facts = _with_node_names(snapshot, facts)
    load_balancers = decide_load_balancers(snapshot, facts, config)
    names = decide_names(claims_of(snapshot), load_balancers, facts, config)
    pod_cidrs, remarks = _pod_cidrs(snapshot, facts, config)
    dnat = config.dnat.backend != "none"
    return Desired(
        addresses=tuple(address for plan in load_balancers for address in plan.relay_addresses),
        listeners=tuple(listener for plan in load_balancers for listener in plan.listeners),
        redirects=tuple(redirect for plan in load_balancers for redirect in plan.redirects) if dnat else (),
        pod_cidrs=pod_cidrs,
        hosts=hosts_lines(names, load_balancers),
        load_balancers=tuple(plan.decision for plan in load_balancers),
        names=names,
        unreadable=tuple(sorted(snapshot.unreadable)),
        remarks=(*facts.notes, *remarks, *sorted(snapshot.not_covered), *_problems(snapshot)),
    )


def _with_node_names(snapshot: Snapshot, facts: Facts) -> Facts:
    """The node's own names are those of its Node object, too: none of them is ever written."""
    if snapshot.node is None:
        return facts
    return replace(facts, node_names=facts.node_names | {canonical(name) for name in snapshot.node.names})


def _problems(snapshot: Snapshot) -> list[str]:
    found = [(ingress.ref, ingress.problems) for ingress in snapshot.ingresses if ingress.problems]
    found += [(gateway.ref, gateway.problems) for gateway in snapshot.gateways if gateway.problems]
    return sorted(f"{ref}: {problem}" for ref, problems in found for problem in problems)


def _pod_cidrs(
    snapshot: Snapshot, facts: Facts, config: Config
) -> tuple[tuple[IPNetwork, ...], tuple[str, ...]]:
    """This node's own pod ranges: only they are redirected; traffic from elsewhere may bear the line."""
    if not config.dnat.pods or config.dnat.backend == "none":
        return (), ()
    found = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = list(snapshot.node.pod_cidrs)
    if not found:
        remark = (
            f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
            "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
        )
        return (), (remark,)
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    return (*ipv4, *ipv6), ()
