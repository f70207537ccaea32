"""Which way connections to one address and port of a load balancer take, and how they fare. Pure.

What is compared: a plain connection and one with the PROXY line, to the load balancer's address and
straight to the ClusterIP (which is the ingress controller and nobody before it). A plain connection that
works although the controller demands the line went through somebody who added it.
"""

from dataclasses import dataclass
from enum import Enum

from nodeagent.doctor.codes import Code
from nodeagent.doctor.signatures import Signature, signature, works
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ProxyVersion
from nodeagent.sources.probes.connection_tests import Outcome


@dataclass(frozen=True, slots=True)
class Answers:
    """What one address and port answered: without the line, with version 1, with version 2."""

    plain: Outcome | None = None
    v1: Outcome | None = None
    v2: Outcome | None = None

    @property
    def all(self) -> tuple[Outcome | None, ...]:
        """All three."""
        return (self.plain, self.v1, self.v2)


@dataclass(frozen=True, slots=True)
class PathObservation:
    """All that was observed of one address and port of a load balancer.

    Attributes:
        endpoint: of the load balancer.
        proxy: the version that the load balancer is known to send; None where it is not known to send any.
        tls: how it was asked.
        load_balancer: what the load balancer's address answered.
        server: the ClusterIP's address and port, None where there is none.
        controller: what the ClusterIP answered.
        relay: this node's relay for it, and what that answered to a plain connection.
        redirected: whether DNAT to the relay stands in the kernel; None where that could not be read.
        in_rules: whether the kernel's Service rules hold the address; None where that could not be read.
        vip: whether kube-proxy short-circuits it by its object's word (KEP-1860: no ipMode, or VIP).
        name: the name that was looked up, where it led, and what that answered to a plain connection.
    """

    endpoint: Endpoint
    proxy: ProxyVersion | None
    tls: bool
    load_balancer: Answers
    server: Endpoint | None = None
    controller: Answers = Answers()
    relay: tuple[Endpoint, Outcome | None] | None = None
    redirected: bool | None = None
    in_rules: bool | None = None
    vip: bool = True
    name: tuple[str, Endpoint, Outcome | None] | None = None


class Demand(Enum):
    """What the ingress controller wants of a connection, as the ClusterIP shows it."""

    LINE = "it demands the PROXY line, and takes both versions"
    ONLY_V1 = "it takes the PROXY line in version 1 only"
    ONLY_V2 = "it takes the PROXY line in version 2 only"
    PLAIN = "it takes no PROXY line"
    EITHER = "it takes connections with the PROXY line and without"
    DOWN = "nobody listens there"
    UNKNOWN = "it answers neither with the PROXY line nor without"


def demand(controller: Answers) -> Demand:
    """What the controller wants."""
    plain, first, second = (works(outcome) for outcome in controller.all)
    if plain:
        return Demand.EITHER if first or second else Demand.PLAIN
    if first and second:
        return Demand.LINE
    if first or second:
        return Demand.ONLY_V1 if first else Demand.ONLY_V2
    signatures = {signature(outcome) for outcome in controller.all}
    return Demand.DOWN if signatures == {Signature.NO_LISTENER} else Demand.UNKNOWN


def conclude(seen: PathObservation) -> Code:
    """The code for one address and port; the first rule that holds decides."""
    wants = demand(seen.controller)
    if seen.proxy is None:
        return _of_unknown_load_balancer(seen, wants)
    if wants is Demand.PLAIN:
        return Code.ControllerWithoutProxy
    if works(seen.load_balancer.plain):
        return _of_working(seen, wants)
    if (wants, seen.proxy) in {(Demand.ONLY_V1, "v2"), (Demand.ONLY_V2, "v1")}:
        return Code.WrongVersion
    return _of_cut(seen, wants)


def _of_working(seen: PathObservation, wants: Demand) -> Code:
    if seen.redirected or (seen.redirected is None and seen.vip and _relay_works(seen)):
        return Code.RemediedByDnat
    if wants in {Demand.LINE, Demand.ONLY_V1, Demand.ONLY_V2}:
        return Code.ThroughLoadBalancer
    short = seen.vip if seen.in_rules is None else seen.in_rules
    return Code.ShortCircuitedAndFine if short else Code.ThroughLoadBalancer


def _relay_works(seen: PathObservation) -> bool:
    return seen.relay is not None and works(seen.relay[1])


def _of_cut(seen: PathObservation, wants: Demand) -> Code:
    """A plain connection to the address does not work."""
    if wants is Demand.DOWN:
        return Code.ControllerDown
    if seen.redirected:
        return Code.RelayDown
    if _remedied_by_name(seen):
        return Code.RemediedByHosts
    return _unremedied(seen, wants)


def _unremedied(seen: PathObservation, wants: Demand) -> Code:
    """Nothing of nodeagent's is in force."""
    if works(seen.load_balancer.v1) or works(seen.load_balancer.v2):
        return Code.ShortCircuitedAndCut
    if wants is Demand.UNKNOWN:
        return Code.PathUnclear
    by_plain = {Signature.NO_LISTENER: Code.LoadBalancerDown, Signature.CUT: Code.LoadBalancerCut}
    return by_plain.get(signature(seen.load_balancer.plain), Code.PathUnclear)


def _of_unknown_load_balancer(seen: PathObservation, wants: Demand) -> Code:
    if works(seen.load_balancer.plain) or wants is Demand.PLAIN:
        short = seen.vip if seen.in_rules is None else seen.in_rules
        return Code.ShortCircuitedAndFine if short else Code.ThroughLoadBalancer
    if wants in {Demand.LINE, Demand.ONLY_V1, Demand.ONLY_V2}:
        return Code.Undetected
    return Code.ControllerDown if wants is Demand.DOWN else Code.PathUnclear


def _remedied_by_name(seen: PathObservation) -> bool:
    """By a hosts line alone: the name leads to this node's relay, and that serves."""
    if seen.name is None or seen.relay is None:
        return False
    _, led_to, outcome = seen.name
    return led_to == seen.relay[0] and works(outcome)
