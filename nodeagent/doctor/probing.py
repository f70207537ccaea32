"""Makes the connections to the load balancers and gathers what came of each. EFFECTS: connections only."""

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nodeagent.doctor.paths import Answers, PathObservation
from nodeagent.doctor.signatures import works
from nodeagent.doctor.targets import Target
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.objects import ObjectRef, ProxyVersion
from nodeagent.sources.probes.connection_tests import (
    CertificateOutcome,
    Outcome,
    Probe,
    ask_all,
    ask_certificates,
)

_HEADERS: tuple[ProxyVersion | None, ...] = (None, "v1", "v2")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of the node besides the connections.

    Attributes:
        relays: where this node's relay stands for each address and port, for those that stand.
        redirected: the endpoints that DNAT sends to the relay; None where that could not be read.
        in_rules: the addresses that the kernel's Service rules hold; None where that could not be read.
        led_to: where each name leads by this node's resolver.
    """

    relays: Mapping[Endpoint, Endpoint]
    redirected: frozenset[Endpoint] | None
    in_rules: frozenset[IPAddress] | None
    led_to: Mapping[str, tuple[IPAddress, ...]]


def observe(targets: Iterable[Target], knowledge: Knowledge) -> list[tuple[Target, PathObservation]]:
    """Asks everything of load balancers that are known to send PROXY, and a plain question of the others.

    The PROXY line is sent to another than those only where a plain connection fails, and only to see whether
    the line is what it lacked.
    """
    wanted = list(targets)
    outcomes = ask_all(probe for target in wanted for probe in _first_round(target, knowledge))
    doubtful = [target for target in wanted if target.proxy is None and not _plainly_works(target, outcomes)]
    outcomes |= ask_all(probe for target in doubtful for probe in _matrix(target))
    return [(target, _observation(target, knowledge, outcomes)) for target in wanted]


def observe_certificates(
    observed: Iterable[tuple[Target, PathObservation]], context: ssl.SSLContext
) -> list[tuple[Target, CertificateOutcome]]:
    """Asks for one certificate of each load balancer and name, in whichever way a connection works.

    `context` says which authorities are trusted.
    """
    wanted: dict[tuple[ObjectRef, str], tuple[Target, Probe]] = {}
    for target, seen in observed:
        probe = _working_probe(target, seen) if seen.tls and target.host else None
        if probe is not None:
            wanted.setdefault((target.service.ref, target.host), (target, probe))
    outcomes = ask_certificates((probe for _, probe in wanted.values()), context)
    return [(target, outcomes[probe]) for target, probe in wanted.values()]


def _first_round(target: Target, knowledge: Knowledge) -> list[Probe]:
    if target.proxy is None:
        return [Probe(target.endpoint, None, tls, target.host) for tls in target.tls]
    probes = _matrix(target)
    relay = knowledge.relays.get(target.endpoint)
    if relay is not None:
        probes += [Probe(relay, None, tls, target.host) for tls in target.tls]
    return probes


def _matrix(target: Target) -> list[Probe]:
    ends = [end for end in (target.endpoint, target.server) if end is not None]
    return [Probe(end, header, tls, target.host) for end in ends for header in _HEADERS for tls in target.tls]


def _plainly_works(target: Target, outcomes: Mapping[Probe, Outcome]) -> bool:
    return any(works(outcomes.get(Probe(target.endpoint, None, tls, target.host))) for tls in target.tls)


def _observation(target: Target, knowledge: Knowledge, outcomes: Mapping[Probe, Outcome]) -> PathObservation:
    relay = knowledge.relays.get(target.endpoint)
    tried = [_as_asked(target, tls, relay, outcomes) for tls in target.tls]
    # Of a port that may be either, the protocol in which anything at all works is meant.
    seen = max(tried, key=_working)
    redirected = None if knowledge.redirected is None else target.endpoint in knowledge.redirected
    in_rules = None if knowledge.in_rules is None else target.endpoint.address in knowledge.in_rules
    return replace(
        seen, redirected=redirected, in_rules=in_rules, name=_by_name(target, seen, relay, knowledge)
    )


def _as_asked(
    target: Target,
    tls: bool,  # noqa: FBT001 - a protocol
    relay: Endpoint | None,
    outcomes: Mapping[Probe, Outcome],
) -> PathObservation:
    def answers(end: Endpoint | None) -> Answers:
        if end is None:
            return Answers()
        return Answers(*(outcomes.get(Probe(end, header, tls, target.host)) for header in _HEADERS))

    return PathObservation(
        endpoint=target.endpoint,
        proxy=target.proxy,
        tls=tls,
        load_balancer=answers(target.endpoint),
        server=target.server,
        controller=answers(target.server),
        relay=None if relay is None else (relay, outcomes.get(Probe(relay, None, tls, target.host))),
        vip=target.vip,
    )


def _working(seen: PathObservation) -> int:
    return sum(works(outcome) for outcome in (*seen.load_balancer.all, *seen.controller.all))


def _by_name(
    target: Target, seen: PathObservation, relay: Endpoint | None, knowledge: Knowledge
) -> tuple[str, Endpoint, Outcome | None] | None:
    """Where the name leads, if that is the relay: nothing but the cluster's own ends is connected to."""
    led_to = knowledge.led_to.get(target.host, ())
    if relay is None or relay.address not in led_to:
        return None
    return (target.host, relay, seen.relay[1] if seen.relay else None)


def _working_probe(target: Target, seen: PathObservation) -> Probe | None:
    ends = [(seen.endpoint, seen.load_balancer)]
    if seen.server is not None:
        ends.append((seen.server, seen.controller))
    for end, answers in ends:
        for header, outcome in zip(_HEADERS, answers.all, strict=True):
            if works(outcome):
                return Probe(end, header, tls=True, host=target.host)
    return None
