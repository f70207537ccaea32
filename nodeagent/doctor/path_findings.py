"""The conclusion about one address and port as a finding for a person. Pure."""

from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.paths import Answers, PathObservation, conclude, demand
from nodeagent.doctor.signatures import works
from nodeagent.model.objects import Service

_SEEN = {
    Code.ThroughLoadBalancer: "works: it really goes through the load balancer",
    Code.ShortCircuitedAndFine: "works: short-circuited, and taken without the PROXY line",
    Code.RemediedByDnat: "works: DNAT sends it through the relay that adds the PROXY line",
    Code.RemediedByHosts: "works by name, through nodeagent's relay; the bare address is cut",
    Code.ShortCircuitedAndCut: "short-circuited and cut: the ingress controller misses the PROXY line",
    Code.Undetected: "cut: the ingress controller demands the PROXY line, which nobody is known to send",
    Code.RelayDown: "cut: DNAT sends it to the relay, which does not serve",
    Code.WrongVersion: "cut: the ingress controller does not take the version of the PROXY line that is sent",
    Code.ControllerWithoutProxy: "the PROXY line is sent, but the ingress controller reads none: "
    "connections from outside fail",
    Code.ControllerDown: "the ingress controller does not answer: no pod is ready, or none listens",
    Code.LoadBalancerDown: "not short-circuited, and the load balancer does not answer",
    Code.LoadBalancerCut: "not short-circuited, and the load balancer cuts it: no target is healthy",
    Code.PathUnclear: "no known signature",
}

_LOOK_AT_LOAD_BALANCER = (
    "look at the load balancer in the provider's console: is it up, are the nodes healthy targets?",
)
_FIXED_REMEDIES = {
    Code.RelayDown: (
        "look at the relay: is HAProxy running, and what does its log say?",
        "$ nodeagent status",
    ),
    Code.LoadBalancerDown: _LOOK_AT_LOAD_BALANCER,
    Code.LoadBalancerCut: _LOOK_AT_LOAD_BALANCER,
    Code.PathUnclear: (
        "compare the evidence with the table of signatures in docs/doctor.md",
        "ask with a name that the ingress controller serves: --host NAME",
    ),
}


def path_finding(service: Service, port_name: str, seen: PathObservation) -> Finding:
    """One finding for one address and port."""
    code = conclude(seen)
    what = f" ({port_name})" if port_name else ""
    return Finding(
        code=code,
        subject=f"{seen.endpoint}{what}",
        seen=_SEEN[code],
        evidence=tuple(_evidence(seen)),
        remedy=_remedy(code, service, seen),
    )


def _evidence(seen: PathObservation) -> list[str]:
    how = "TLS" if seen.tls else "HTTP"
    lines = [f"{how} to {seen.endpoint}: {_answers(seen.load_balancer)}"]
    if seen.server is not None and any(seen.controller.all):
        lines.append(f"straight to the ClusterIP {seen.server}: {_answers(seen.controller)}")
        lines.append(f"the ingress controller: {demand(seen.controller).value}")
    if seen.relay is not None and seen.relay[1] is not None:
        lines.append(f"this node's relay {seen.relay[0]}: {seen.relay[1]}")
    if seen.redirected:
        lines.append("DNAT to the relay is in force")
    if seen.name is not None and seen.name[2] is not None:
        name, led_to, outcome = seen.name
        lines.append(f"by name, {name} leads to {led_to}: {outcome}")
    if seen.in_rules is not None:
        lines.append(
            f"the kernel's Service rules {'hold' if seen.in_rules else 'do not hold'} {seen.endpoint.address}"
        )
    return lines


def _answers(answers: Answers) -> str:
    named = (("plain", answers.plain), ("with PROXY v1", answers.v1), ("with PROXY v2", answers.v2))
    return "; ".join(f"{name}: {outcome}" for name, outcome in named if outcome is not None)


def _remedy(code: Code, service: Service, seen: PathObservation) -> tuple[str, ...]:
    path = service.ref.path
    if code is Code.Undetected:
        version = "v1" if works(seen.controller.v1) else "v2"
        return (
            f"if the load balancer sends the line: list {path} in loadBalancers.services ({version})",
            "if it sends none: switch the PROXY protocol off in the ingress controller",
        )
    if code is Code.WrongVersion:
        wanted = "v2" if seen.proxy == "v1" else "v1"
        return (
            f"let the load balancer send PROXY {wanted}",
            f"where it does so already: list {path} in loadBalancers.services, proxyProtocol: {wanted}",
        )
    if code is Code.ControllerWithoutProxy:
        return (
            'let the ingress controller read the line (ingress-nginx: use-proxy-protocol: "true")',
            "or let the load balancer send none",
            f"if the load balancer sends none in truth: list {path} in loadBalancers.ignore",
        )
    if code is Code.ControllerDown:
        return (f"look at the ingress controller's pods behind Service {path}: is one ready?",)
    return _FIXED_REMEDIES.get(code, ())
