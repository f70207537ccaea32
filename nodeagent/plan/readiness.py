"""Nothing is pointed at a relay that does not answer: which parts of a plan have to wait, and why."""

from collections.abc import Set as AbstractSet
from dataclasses import replace

from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision, Verdict


def defer_until_ready(desired: Desired, ready: AbstractSet[Endpoint]) -> Desired:
    """Return the plan without the redirects and hosts lines whose relay is not among `ready`. Pure.

    A hosts line affects every port: it waits until all listeners of its address answer. Otherwise, another
    local program could have the missing one. The decisions say what is missing. Redirects and lines to a
    relay that is not this node's (an existing relay Service) are kept.
    """
    silent = {listener.bind for listener in desired.listeners} - ready
    if not silent:
        return desired
    dead = {bind.address for bind in silent}
    hosts = tuple(line for line in desired.hosts if line.address not in dead)
    written = {line.name for line in hosts}
    return replace(
        desired,
        dnat=replace(
            desired.dnat,
            redirects=tuple(redirect for redirect in desired.dnat.redirects if redirect.to not in silent),
        ),
        hosts=hosts,
        load_balancers=tuple(_remark(decision, silent, ready) for decision in desired.load_balancers),
        names=tuple(_wait(decision, written) for decision in desired.names),
    )


def _remark(
    decision: LoadBalancerDecision, silent: AbstractSet[Endpoint], ready: AbstractSet[Endpoint]
) -> LoadBalancerDecision:
    missing = sorted(
        (bind for bind in silent if bind.address in decision.relay_addresses), key=Endpoint.sort_key
    )
    if not missing:
        return decision
    told = replace(
        decision,
        remarks=(*decision.remarks, *(f"deferred: no relay answers at {bind}" for bind in missing)),
    )
    if any(bind.address in decision.relay_addresses for bind in ready):
        return told
    return replace(
        told, verdict=Verdict.REFUSED, code="RelayDown", reason="deferred: its relay does not answer"
    )


def _wait(decision: NameDecision, written: AbstractSet[str]) -> NameDecision:
    if decision.verdict is not Verdict.SERVED or decision.name in written:
        return decision
    return replace(
        decision, verdict=Verdict.REFUSED, code="RelayDown", reason="deferred: its relay does not answer"
    )
