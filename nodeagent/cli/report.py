"""Turns plan and comparison into the document that `-o json` prints. Pure."""

from collections.abc import Mapping
from typing import Literal

from nodeagent.agent.convergence import Comparison
from nodeagent.cli import document as doc
from nodeagent.components.addresses.state import AddressChange
from nodeagent.components.dnat.state import DnatChange
from nodeagent.components.hosts.state import HostsChange
from nodeagent.components.node import ListenerStatus
from nodeagent.components.relay.state import RelayChange
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, DnatRules, Listener, LoadBalancerDecision, NameDecision, Redirect
from nodeagent.model.objects import ObjectRef


def report(
    kind: Literal["Plan", "Status"],
    node_name: str,
    desired: Desired,
    comparison: Comparison,
    listeners: Mapping[Endpoint, ListenerStatus] | None = None,
) -> doc.Document:
    """Return the document; `listeners` for a status."""
    written = comparison.written_names
    return doc.Document(
        schema_version="1",
        kind=kind,
        node=node_name,
        in_sync=comparison.in_sync,
        changes=doc.Changes(
            addresses=_addresses(comparison.changes.get("addresses")),
            relay=_relay(comparison.changes.get("relay")),
            dnat=_dnat(comparison.changes.get("dnat"), comparison),
            hosts=_hosts(comparison.changes.get("hosts")),
        ),
        errors={str(component): text for component, text in comparison.errors.items()},
        load_balancers=[_load_balancer(decision, desired, listeners) for decision in desired.load_balancers],
        names=[_name(decision, written) for decision in desired.names],
        unreadable=[doc.Unreadable(entry.where, entry.reason) for entry in desired.unreadable],
        remarks=[*desired.remarks, *comparison.notes],
    )


def _load_balancer(
    decision: LoadBalancerDecision,
    desired: Desired,
    listeners: Mapping[Endpoint, ListenerStatus] | None,
) -> doc.LoadBalancer:
    binds = [
        listener.bind for listener in desired.listeners if listener.load_balancer == decision.load_balancer
    ]
    return doc.LoadBalancer(
        service=_object(decision.load_balancer),
        verdict=decision.verdict.value,
        code=decision.code,
        reason=decision.reason,
        addresses=[str(address) for address in decision.addresses],
        relay_addresses=[str(address) for address in decision.relay_addresses],
        ports=sorted({bind.port for bind in binds}),
        remarks=list(decision.remarks),
        listeners=None if listeners is None else [_listener_report(listeners[bind]) for bind in binds],
    )


def _listener_report(found: ListenerStatus) -> doc.ListenerReport:
    return doc.ListenerReport(
        relay=str(found.bind),
        answers=found.answers,
        redirected=[str(endpoint) for endpoint in found.redirected],
        backend=found.backend,
    )


def _name(decision: NameDecision, written: frozenset[str] | None) -> doc.Name:
    return doc.Name(
        name=decision.name,
        claimed_by=_object(decision.claimed_by),
        service=_object(decision.load_balancer) if decision.load_balancer else None,
        verdict=decision.verdict.value,
        code=decision.code,
        reason=decision.reason,
        written=None if written is None else decision.name in written,
    )


def _addresses(change: AddressChange | None) -> doc.AddressChanges | None:
    if not change:
        return None
    return doc.AddressChanges(
        interface=str(change.home),
        add=[str(added.address) for added in change.add],
        remove=[str(removed.address) for removed in change.remove],
    )


def _relay(change: RelayChange | None) -> doc.RelayChanges | None:
    if not change:
        return None
    return doc.RelayChanges(
        action=change.action,
        reason=change.reason,
        add=[_listener(listener) for listener in (*change.added, *(new for _, new in change.changed))],
        remove=[_listener(listener) for listener in (*change.removed, *(old for old, _ in change.changed))],
    )


def _listener(listener: Listener) -> doc.Relay:
    return doc.Relay(
        str(listener.bind), str(listener.server), listener.proxy, _object(listener.load_balancer)
    )


def _dnat(change: DnatChange | None, comparison: Comparison) -> doc.DnatChanges | None:
    if not change:
        return None
    return doc.DnatChanges(
        backend=comparison.dnat_backend,
        add=_rules(change.added),
        remove=_rules(change.removed),
        damage=list(change.damage),
        transaction=comparison.previews["dnat"].text,
    )


def _rules(rules: DnatRules) -> doc.DnatRules:
    return doc.DnatRules(
        redirects=[_entry(redirect) for redirect in rules.redirects],
        pods=[str(network) for network in rules.pods],
        guarded=[str(network) for network in rules.guarded],
        admitted=[str(network) for network in rules.admitted],
    )


def _entry(redirect: Redirect) -> doc.DnatEntry:
    return doc.DnatEntry(str(redirect.match), str(redirect.to), _object(redirect.load_balancer))


def _hosts(change: HostsChange | None) -> doc.HostsChanges | None:
    if not change:
        return None
    return doc.HostsChanges(
        file=str(change.before.path),
        add=list(change.names.added),
        remove=list(change.names.removed),
        move=list(change.names.moved),
        diff=change.diff(),
    )


def _object(ref: ObjectRef) -> doc.ObjectName:
    return doc.ObjectName(ref.kind, ref.namespace, ref.name)
