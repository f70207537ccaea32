from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import CheckStatus, Code
from nodeagent.doctor.paths import Answers, PathObservation, Target, conclude, path_finding
from nodeagent.model.addresses import Endpoint
from nodeagent.sources.connection_tests import Ending, ProbeOutcome
from tests.plan.made_up import point, service

OK = ProbeOutcome(Ending.STATUS, 200)
NOT_FOUND = ProbeOutcome(Ending.STATUS, 404)
BAD = ProbeOutcome(Ending.STATUS, 400)
EMPTY = ProbeOutcome(Ending.EMPTY_REPLY)
RESET = ProbeOutcome(Ending.RESET_IN_HANDSHAKE)
REFUSED = ProbeOutcome(Ending.REFUSED)
UNTRIED = ProbeOutcome(Ending.NOT_ASKED)
TIMEOUT = ProbeOutcome(Ending.CONNECT_TIMEOUT)
NOT_TLS = ProbeOutcome(Ending.NOT_TLS)

BALANCER = Endpoint(ip_address("192.0.2.1"), 443)
SERVER = Endpoint(ip_address("10.96.0.7"), 443)
RELAY = Endpoint(ip_address("169.254.66.7"), 443)

LINE = Answers(RESET, OK, OK)
"""A controller that demands the line."""
PLAIN = Answers(OK, NOT_TLS, NOT_TLS)
EITHER = Answers(OK, OK, OK)
DOWN = Answers(REFUSED, REFUSED, TIMEOUT)
ONLY_V1 = Answers(EMPTY, OK, EMPTY)
ONLY_V2 = Answers(EMPTY, EMPTY, OK)

BLUE = service("blue")
TARGET = Target(BLUE, BLUE.ports[0], BALANCER, "v1", vip=True, host="", tls=(True,), server=SERVER)
BROKEN = PathObservation(
    TARGET, tls=True, load_balancer=LINE, controller=LINE, redirected=False, in_rules=True
)


WORKS = replace(BROKEN, load_balancer=Answers(OK, NOT_TLS, NOT_TLS))
RELAYED = replace(BROKEN, redirected=True, relay=(RELAY, OK))
BY_NAME = replace(BROKEN, relay=(RELAY, OK), name="site.example.com")
BOTH = replace(BROKEN, load_balancer=EITHER, controller=EITHER)
"""A controller that takes both is judged by the rules, then by the object."""
UNREAD = replace(WORKS, controller=PLAIN, load_balancer=PLAIN)
"""A controller that does not read the header."""
UNKNOWN = replace(BROKEN, target=replace(TARGET, proxy=None))
BY_OBJECT = replace(TARGET, vip=False)
OUTSIDE = replace(BROKEN, target=BY_OBJECT, in_rules=False)
V2 = replace(TARGET, proxy="v2")
OTHER = replace(OUTSIDE, target=replace(BY_OBJECT, proxy=None), controller=PLAIN)
"""One that is not known to send the header, and whose controller does not want it."""
MUTE = Answers(EMPTY, EMPTY, EMPTY)
ALL_NOT_TLS = Answers(NOT_TLS, NOT_TLS, NOT_TLS)
RELAY_ENDS = [
    replace(BROKEN, load_balancer=Answers(end, end, end), redirected=True) for end in (REFUSED, RESET)
]


@pytest.mark.parametrize(
    ("code", "cases"),
    [
        # HAProxy's controller answers 400.
        (
            Code.ShortCircuitedAndCut,
            [
                BROKEN,
                replace(BROKEN, load_balancer=Answers(BAD, OK, EMPTY)),
                replace(BROKEN, controller=Answers(BAD, OK, OK)),
                replace(BROKEN, target=V2, controller=Answers(EMPTY, NOT_FOUND, NOT_FOUND)),
            ],
        ),
        # A relay that a hosts line leads to, and that does not serve.
        (Code.ShortCircuitedAndCut, [replace(BY_NAME, relay=(RELAY, RESET)), replace(BY_NAME, name="")]),
        (Code.ShortCircuitedAndFine, [BOTH, replace(BOTH, in_rules=None)]),
        # A plain connection that works where the header is demanded had it added on the way.
        (Code.ThroughLoadBalancer, [replace(WORKS, in_rules=found) for found in (True, False, None)]),
        (
            Code.ThroughLoadBalancer,
            [replace(BOTH, in_rules=False), replace(BOTH, in_rules=None, target=BY_OBJECT)],
        ),
        # Fixed by DNAT, even if its rules can't be read; what was measured counts more than they do.
        (
            Code.RemediedByDnat,
            [
                replace(WORKS, relay=(RELAY, OK), redirected=True),
                replace(WORKS, relay=(RELAY, OK), redirected=None),
                replace(WORKS, relay=(RELAY, OK), redirected=None, relayed=True),
            ],
        ),
        (
            Code.ThroughLoadBalancer,
            [
                replace(WORKS, relay=(RELAY, OK), redirected=None, target=BY_OBJECT),
                replace(WORKS, relay=(RELAY, REFUSED), redirected=None),
                replace(WORKS, relay=(RELAY, OK), redirected=True, relayed=False),
            ],
        ),
        (Code.RemediedByHosts, [BY_NAME, replace(BY_NAME, redirected=True, relayed=False)]),
        (Code.DnatBypassed, [replace(RELAYED, relayed=False)]),
        (
            Code.RelayDown,
            [
                *RELAY_ENDS,
                replace(RELAYED, relayed=True),
                replace(RELAYED, relayed=False, relay=(RELAY, REFUSED)),
            ],
        ),
        (
            Code.WrongVersion,
            [
                replace(BROKEN, load_balancer=MUTE, redirected=True, target=V2, controller=ONLY_V1),
                replace(BROKEN, load_balancer=MUTE, redirected=True, controller=ONLY_V2),
                replace(OUTSIDE, controller=ONLY_V2, load_balancer=ONLY_V2),
            ],
        ),
        # By nodeagent's relay, by the load balancer itself, or by a hosts line alone.
        (
            Code.ControllerWithoutProxy,
            [
                replace(UNREAD, load_balancer=ALL_NOT_TLS, redirected=True),
                replace(UNREAD, load_balancer=ALL_NOT_TLS),
                replace(UNREAD, relay=(RELAY, NOT_TLS), name="site.example.com"),
            ],
        ),
        (Code.WorksWithoutProxy, [UNREAD, replace(UNREAD, relay=(RELAY, OK), name="site.example.com")]),
        (
            Code.ControllerDown,
            [
                replace(BROKEN, load_balancer=DOWN, controller=DOWN),
                replace(UNKNOWN, load_balancer=DOWN, controller=DOWN),
                *(replace(end, controller=DOWN) for end in RELAY_ENDS),
            ],
        ),
        (
            Code.LoadBalancerDown,
            [
                replace(OUTSIDE, load_balancer=Answers(silence, silence, silence))
                for silence in (REFUSED, TIMEOUT, ProbeOutcome(Ending.UNREACHABLE))
            ],
        ),
        # It has no healthy target.
        (Code.LoadBalancerDown, [replace(OUTSIDE, load_balancer=Answers(RESET, RESET, EMPTY))]),
        (
            Code.PathUnclear,
            [
                replace(BROKEN, load_balancer=MUTE, controller=MUTE),
                replace(UNKNOWN, load_balancer=MUTE, controller=MUTE),
                # Neither the kernel's rules nor the ClusterIP say which way it took.
                replace(WORKS, controller=DOWN, in_rules=None),
                PathObservation(TARGET, tls=False, load_balancer=Answers()),
                # The relay works, and whether the connection arrived there could not be seen.
                RELAYED,
                # The time was used up: nothing was seen.
                replace(RELAYED, load_balancer=Answers(UNTRIED, UNTRIED, UNTRIED)),
                replace(UNREAD, load_balancer=Answers(UNTRIED, UNTRIED, UNTRIED)),
            ],
        ),
        # A load balancer that is not known to send the header.
        (Code.Undetected, [UNKNOWN]),
        (
            Code.LoadBalancerDown,
            [replace(OTHER, load_balancer=DOWN), replace(OTHER, load_balancer=ALL_NOT_TLS)],
        ),
        (Code.PathUnclear, [replace(OTHER, load_balancer=DOWN, in_rules=True)]),
        (Code.ShortCircuitedAndFine, [replace(UNKNOWN, load_balancer=PLAIN, controller=Answers())]),
        (
            Code.ThroughLoadBalancer,
            [replace(UNKNOWN, load_balancer=PLAIN, controller=Answers(), in_rules=False)],
        ),
    ],
)
def test_what_is_concluded(code: Code, cases: list[PathObservation]) -> None:
    for seen in cases:
        assert conclude(seen) is code, seen


def test_where_a_controller_does_not_read_the_header_what_works_here_says_nothing_of_outside() -> None:
    failing = path_finding(replace(UNREAD, load_balancer=ALL_NOT_TLS))
    assert failing.status is CheckStatus.AFFECTED
    working = path_finding(UNREAD)
    assert working.status is CheckStatus.CANNOT_TELL
    assert "loadBalancers.ignore" in "\n".join(working.remedy)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (UNKNOWN, "list ingress/blue in loadBalancers.services (v1)"),
        (replace(UNKNOWN, controller=ONLY_V2, load_balancer=ONLY_V2), "loadBalancers.services (v2)"),
        (replace(BROKEN, controller=ONLY_V2), "make the load balancer send PROXY v2"),
        (replace(BROKEN, controller=PLAIN), "loadBalancers.ignore"),
        (replace(BROKEN, controller=DOWN), "pods behind Service ingress/blue"),
    ],
)
def test_the_fix_names_what_to_change(seen: PathObservation, words: str) -> None:
    assert words in "\n".join(path_finding(seen).remedy)


def test_one_that_publishes_a_hostname_and_does_not_answer_its_own_target_can_be_served() -> None:
    """The controller is there and wants the header: a time-out from here alone is the hairpin."""
    mute = replace(OUTSIDE, load_balancer=Answers(TIMEOUT, TIMEOUT, TIMEOUT))
    hostname_only = service("blue", points=(point(hostname="lb.example.org"),))
    named = path_finding(replace(mute, target=replace(mute.target, service=hostname_only)))
    assert named.code == Code.LoadBalancerDown
    assert "list ingress/blue in loadBalancers.services with hostnameOnly: true" in "\n".join(named.remedy)
    assert "hostnameOnly" not in "\n".join(path_finding(mute).remedy)
    served = replace(mute, relay=(RELAY, OK), name="www.example.net")
    assert conclude(served) is Code.RemediedByHosts
