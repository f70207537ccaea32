"""Which path connections to one address and port of a load balancer take, and how they end. Pure.

It compares plain connections and those with the PROXY header, to the load balancer's address and directly to
the ClusterIP. If a plain one works although the controller requires the header, something on the way added
it. docs/doctor.md has the signatures.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nodeagent.doctor.findings import Code, Finding
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ProxyVersion, Service, ServicePort
from nodeagent.sources.connection_tests import Ending, ProbeOutcome


def works(outcome: ProbeOutcome | None) -> bool:
    """Whether it was tried, and worked."""
    return outcome is not None and outcome.works


class Answers(NamedTuple):
    """What one address and port answered: without the header, with version 1, with version 2."""

    plain: ProbeOutcome | None = None
    v1: ProbeOutcome | None = None
    v2: ProbeOutcome | None = None


_UNASKED = Answers()


@dataclass(frozen=True, slots=True)
class Target:
    """One address and port of a load balancer, and how to test it.

    Attributes:
        proxy: the version that the load balancer is known to send.
        vip: whether kube-proxy short-circuits the address according to its object (KEP-1860).
        tls: with TLS, without, or both if neither name nor number of the port shows it.
    """

    service: Service
    port: ServicePort
    endpoint: Endpoint
    proxy: ProxyVersion | None
    vip: bool
    host: str
    tls: tuple[bool, ...]
    server: Endpoint | None


@dataclass(frozen=True, slots=True)
class PathObservation:
    """All observations of one address and port of a load balancer.

    Attributes:
        controller: what the ClusterIP answered.
        relay: this node's relay for it, and what that answered to a plain connection.
        redirected: whether DNAT to the relay is in the kernel; None if that could not be read.
        relayed: whether a connection to the load balancer's address arrived there; None: not measured.
        in_rules: whether the kernel's Service rules contain the address; None if that could not be read.
        name: the hostname, if this node's resolver leads it to the relay.
    """

    target: Target
    tls: bool
    load_balancer: Answers
    controller: Answers = _UNASKED
    relay: tuple[Endpoint, ProbeOutcome | None] | None = None
    redirected: bool | None = None
    relayed: bool | None = None
    in_rules: bool | None = None
    name: str = ""

    @property
    def bypassed(self) -> bool:
        """Whether connections pass by DNAT to a relay that works: they were measured, and did not arrive."""
        return bool(self.redirected) and self.relayed is False and _relay_works(self)


class Demand(Enum):
    """What the ingress controller requires of a connection, as the ClusterIP shows it."""

    LINE = "it requires the PROXY header, and accepts both versions"
    ONLY_V1 = "it accepts the PROXY header only in version 1"
    ONLY_V2 = "it accepts the PROXY header only in version 2"
    PLAIN = "it does not accept the PROXY header"
    EITHER = "it accepts connections with the PROXY header and without it"
    DOWN = "no process listens there"
    UNKNOWN = "it does not answer, with the PROXY header or without it"


def demand(controller: Answers) -> Demand:
    """Return what the controller requires."""
    plain, first, second = (works(outcome) for outcome in controller)
    if plain:
        return Demand.EITHER if first or second else Demand.PLAIN
    if first and second:
        return Demand.LINE
    if first or second:
        return Demand.ONLY_V1 if first else Demand.ONLY_V2
    down = all(outcome is not None and outcome.is_unheard for outcome in controller)
    return Demand.DOWN if down else Demand.UNKNOWN


def conclude(seen: PathObservation) -> Code:
    """Return the code for one address and port; the first rule that applies decides."""
    plain = seen.load_balancer.plain
    if plain is None or plain.ending is Ending.NOT_ASKED:
        return Code.PathUnclear
    wants = demand(seen.controller)
    if seen.target.proxy is None:
        return _of_unknown_load_balancer(seen, wants)
    if wants is Demand.PLAIN:
        # To the address, and by a hostname that leads to this node's relay.
        here = works(seen.load_balancer.plain) and (not seen.name or _relay_works(seen))
        return Code.WorksWithoutProxy if here else Code.ControllerWithoutProxy
    if works(seen.load_balancer.plain):
        return _of_working(seen, wants)
    if (wants, seen.target.proxy) in {(Demand.ONLY_V1, "v2"), (Demand.ONLY_V2, "v1")}:
        return Code.WrongVersion
    return _of_cut(seen, wants)


def _of_working(seen: PathObservation, wants: Demand) -> Code:
    if _by_dnat(seen):
        return Code.RemediedByDnat
    if wants in {Demand.LINE, Demand.ONLY_V1, Demand.ONLY_V2}:
        return Code.ThroughLoadBalancer
    if seen.in_rules is None and wants in {Demand.DOWN, Demand.UNKNOWN}:
        return Code.PathUnclear
    return Code.ShortCircuitedAndFine if _short(seen) else Code.ThroughLoadBalancer


def _short(seen: PathObservation) -> bool:
    """Whether kube-proxy short-circuits the address: by the kernel's rules, else by the object."""
    return seen.target.vip if seen.in_rules is None else seen.in_rules


def _by_dnat(seen: PathObservation) -> bool:
    """Whether DNAT leads to the relay: as measured, else by its rules, else by what else is known."""
    if seen.relayed is not None:
        return seen.relayed
    return seen.redirected or (seen.redirected is None and seen.target.vip and _relay_works(seen))


def _relay_works(seen: PathObservation) -> bool:
    return seen.relay is not None and works(seen.relay[1])


def _of_cut(seen: PathObservation, wants: Demand) -> Code:
    """Conclude from a plain connection to the address that does not work."""
    if wants is Demand.DOWN:
        return Code.ControllerDown
    if seen.redirected and not seen.bypassed:
        # The relay works, and whether the connection arrived there is not known.
        unmeasured = seen.relayed is None and _relay_works(seen)
        return Code.PathUnclear if unmeasured else Code.RelayDown
    if seen.name and _relay_works(seen):
        return Code.RemediedByHosts
    if seen.bypassed:
        return Code.DnatBypassed
    return _unremedied(seen, wants)


def _unremedied(seen: PathObservation, wants: Demand) -> Code:
    """Nothing of nodeagent's is active."""
    if works(seen.load_balancer.v1) or works(seen.load_balancer.v2):
        return Code.ShortCircuitedAndCut
    if wants is Demand.UNKNOWN:
        return Code.PathUnclear
    plain = seen.load_balancer.plain
    dead = plain is not None and (plain.is_unheard or plain.is_cut)
    return Code.LoadBalancerDown if dead and not seen.in_rules else Code.PathUnclear


def _of_unknown_load_balancer(seen: PathObservation, wants: Demand) -> Code:
    if works(seen.load_balancer.plain):
        return Code.ShortCircuitedAndFine if _short(seen) else Code.ThroughLoadBalancer
    if wants in {Demand.LINE, Demand.ONLY_V1, Demand.ONLY_V2}:
        return Code.Undetected
    if wants is Demand.DOWN:
        return Code.ControllerDown
    # The controller accepts what the load balancer, or what is in front of it, rejects.
    return Code.LoadBalancerDown if wants is Demand.PLAIN and not _short(seen) else Code.PathUnclear


_PATH_WORDS = {
    Code.ThroughLoadBalancer: "works: the connection really goes through the load balancer",
    Code.ShortCircuitedAndFine: "works: short-circuited, and accepted without the PROXY header",
    Code.RemediedByDnat: "works: DNAT sends it through the relay, which adds the PROXY header",
    Code.RemediedByHosts: "works by hostname, through nodeagent's relay; connections to the bare address "
    "are rejected",
    Code.ShortCircuitedAndCut: "short-circuited and rejected: the ingress controller did not receive the "
    "PROXY header",
    Code.Undetected: "rejected: the ingress controller requires the PROXY header, which nothing is known to "
    "send",
    Code.RelayDown: "rejected: DNAT sends it to the relay, which does not serve it",
    Code.DnatBypassed: "rejected: DNAT to the relay is active, but the connection did not arrive there: "
    "something rewrites it before the packet filter sees it",
    Code.WrongVersion: "rejected: the ingress controller does not accept the version of the PROXY header "
    "that is sent",
    Code.ControllerWithoutProxy: "rejected: the PROXY header is sent, but the ingress controller does not "
    "read it",
    Code.WorksWithoutProxy: "works from this node, but the ingress controller does not read the PROXY "
    "header: if the load balancer sends it, connections from outside fail, which can't be seen from here",
    Code.ControllerDown: "the ingress controller does not answer: no pod is ready, or none of them listens",
    Code.LoadBalancerDown: "not short-circuited, and the load balancer does not answer or closes the "
    "connection",
    Code.PathUnclear: "matches no known signature",
}

_ARRIVED = {
    True: "a connection arrived there",
    False: "a connection to the load balancer did not arrive there",
    None: "not measured",
}
_LOOK_AT_LOAD_BALANCER = "check the load balancer in the provider's console: is it up, are nodes healthy?"
_FIXED_REMEDIES = {
    Code.RelayDown: ("check the relay: is HAProxy running, and what does its log say?", "$ nodeagent status"),
    Code.DnatBypassed: (
        "use nodeagent's cilium overlay, which serves the node by hosts lines (docs/install.md)",
        "or, without nodeagent: ipMode: Proxy, or a hostname instead of the address",
        "if no CNI does it: look for another program's chain at priority -105 or before",
        "$ nft list chains",
    ),
    Code.LoadBalancerDown: (_LOOK_AT_LOAD_BALANCER,),
    Code.PathUnclear: (
        "compare the evidence with the table of signatures in docs/doctor.md",
        "test with a hostname that the ingress controller serves: --host HOSTNAME",
    ),
}


def path_finding(seen: PathObservation) -> Finding:
    """One finding for one address and port."""
    code, name = conclude(seen), seen.target.port.name
    subject = f"{seen.target.endpoint}{f' ({name})' if name else ''}"
    return Finding.of(code, subject, _PATH_WORDS[code], _evidence(seen), _path_remedy(code, seen))


def _evidence(seen: PathObservation) -> list[str]:
    how = "TLS" if seen.tls else "HTTP"
    lines = [f"{how} to {seen.target.endpoint}: {_answers(seen.load_balancer)}"]
    if seen.target.server is not None and any(seen.controller):
        lines.append(f"straight to the ClusterIP {seen.target.server}: {_answers(seen.controller)}")
        lines.append(f"the ingress controller: {demand(seen.controller).value}")
    if seen.relay is not None and seen.relay[1] is not None:
        lines.append(f"this node's relay {seen.relay[0]}: {seen.relay[1]}")
    if seen.redirected:
        lines.append(f"DNAT to the relay is active: {_ARRIVED[seen.relayed]}")
    if seen.name and seen.relay is not None and seen.relay[1] is not None:
        lines.append(f"by hostname, {seen.name} leads to {seen.relay[0]}: {seen.relay[1]}")
    if seen.in_rules is not None:
        contain = "contain" if seen.in_rules else "do not contain"
        lines.append(f"the kernel's Service rules {contain} {seen.target.endpoint.address}")
    return lines


def _answers(answers: Answers) -> str:
    named = (("plain", answers.plain), ("with PROXY v1", answers.v1), ("with PROXY v2", answers.v2))
    return "; ".join(f"{name}: {outcome}" for name, outcome in named if outcome is not None)


def _path_remedy(code: Code, seen: PathObservation) -> tuple[str, ...]:
    service = seen.target.service
    path = service.ref.path
    if code is Code.Undetected:
        version = "v1" if works(seen.controller.v1) else "v2"
        return (
            f"if the load balancer sends the header: list {path} in loadBalancers.services ({version})",
            "if it does not: switch PROXY on there (docs/configuration.md), or off in the ingress controller",
        )
    if code is Code.WrongVersion:
        wanted = "v2" if seen.target.proxy == "v1" else "v1"
        return (
            f"make the load balancer send PROXY {wanted}",
            f"if it already does: list {path} in loadBalancers.services, proxyProtocol: {wanted}",
        )
    if code in {Code.ControllerWithoutProxy, Code.WorksWithoutProxy}:
        return (
            (
                'make the ingress controller read the header (ingress-nginx: use-proxy-protocol: "true"; '
                "Cilium: only for all Gateways at once, and GAMMA routes then fail: docs/controllers.md)"
            ),
            "or switch the header off at the load balancer",
            (
                f"if the load balancer actually sends none: list {path} in loadBalancers.ignore, since "
                "nodeagent's relay adds the header, too"
            ),
        )
    if code is Code.LoadBalancerDown and not service.load_balancer_ips:
        return (
            (
                "if it answers elsewhere, this node is probably one of its targets. On AWS, switch client-IP "
                "preservation off (preserve_client_ip.enabled=false); the PROXY header names the client"
            ),
            f"or list {path} in loadBalancers.services with hostnameOnly: true (docs/fixes.md)",
            _LOOK_AT_LOAD_BALANCER,
        )
    if code is Code.ControllerDown:
        return (f"check the ingress controller's pods behind Service {path}: is one of them ready?",)
    return _FIXED_REMEDIES.get(code, ())
