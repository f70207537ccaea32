"""From what was asked and answered to the way a connection takes: every conclusion, on values."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import CheckVerdict, Code
from nodeagent.doctor.paths import Answers, Demand, PathObservation, conclude, demand, path_finding
from nodeagent.model.addresses import Endpoint
from nodeagent.sources.probes.connection_tests import Ending, ProbeOutcome
from tests.plan.made_up import service

OK = ProbeOutcome(Ending.STATUS, 200)
NOT_FOUND = ProbeOutcome(Ending.STATUS, 404)
BAD = ProbeOutcome(Ending.STATUS, 400)
EMPTY = ProbeOutcome(Ending.EMPTY_REPLY)
RESET = ProbeOutcome(Ending.RESET_IN_HANDSHAKE)
REFUSED = ProbeOutcome(Ending.REFUSED)
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

BROKEN = PathObservation(
    BALANCER,
    "v1",
    tls=True,
    load_balancer=LINE,
    server=SERVER,
    controller=LINE,
    redirected=False,
    in_rules=True,
)


@pytest.mark.parametrize(
    ("controller", "wanted"),
    [
        (LINE, Demand.LINE),
        (Answers(EMPTY, NOT_FOUND, NOT_FOUND), Demand.LINE),
        (Answers(BAD, OK, OK), Demand.LINE),
        (ONLY_V1, Demand.ONLY_V1),
        (ONLY_V2, Demand.ONLY_V2),
        (PLAIN, Demand.PLAIN),
        (Answers(OK, BAD, BAD), Demand.PLAIN),
        (EITHER, Demand.EITHER),
        (DOWN, Demand.DOWN),
        (Answers(EMPTY, EMPTY, EMPTY), Demand.UNKNOWN),
        (Answers(), Demand.UNKNOWN),
    ],
)
def test_what_the_controller_wants(controller: Answers, wanted: Demand) -> None:
    assert demand(controller) is wanted


def test_short_circuited_and_cut() -> None:
    assert conclude(BROKEN) is Code.ShortCircuitedAndCut
    only_one_way = replace(BROKEN, load_balancer=Answers(BAD, OK, EMPTY))
    assert conclude(only_one_way) is Code.ShortCircuitedAndCut, "HAProxy's controller answers 400"


@pytest.mark.parametrize("in_rules", [True, False, None])
def test_a_plain_connection_that_works_where_the_line_is_demanded_had_it_added(
    in_rules: bool | None,  # noqa: FBT001 - the three answers
) -> None:
    works = replace(BROKEN, load_balancer=Answers(OK, NOT_TLS, NOT_TLS), in_rules=in_rules)
    assert conclude(works) is Code.ThroughLoadBalancer


def test_a_controller_that_takes_both_is_judged_by_the_rules_then_by_the_object() -> None:
    works = replace(BROKEN, load_balancer=EITHER, controller=EITHER)
    assert conclude(works) is Code.ShortCircuitedAndFine
    assert conclude(replace(works, in_rules=False)) is Code.ThroughLoadBalancer
    assert conclude(replace(works, in_rules=None)) is Code.ShortCircuitedAndFine
    assert conclude(replace(works, in_rules=None, vip=False)) is Code.ThroughLoadBalancer


def test_fixed_by_dnat_even_if_the_rules_can_not_be_read() -> None:
    works = replace(BROKEN, load_balancer=Answers(OK, NOT_TLS, NOT_TLS), relay=(RELAY, OK))
    assert conclude(replace(works, redirected=True)) is Code.RemediedByDnat
    assert conclude(replace(works, redirected=None)) is Code.RemediedByDnat
    assert conclude(replace(works, redirected=None, vip=False)) is Code.ThroughLoadBalancer
    assert conclude(replace(works, redirected=None, relay=(RELAY, REFUSED))) is Code.ThroughLoadBalancer


def test_fixed_only_by_a_hosts_line() -> None:
    by_name = replace(BROKEN, relay=(RELAY, OK), name=("site.example.com", RELAY, OK))
    assert conclude(by_name) is Code.RemediedByHosts
    assert conclude(replace(by_name, name=("site.example.com", BALANCER, OK))) is Code.ShortCircuitedAndCut
    assert conclude(replace(by_name, name=("site.example.com", RELAY, RESET))) is Code.ShortCircuitedAndCut


@pytest.mark.parametrize("relay", [REFUSED, RESET])
def test_the_relay_is_down(relay: ProbeOutcome) -> None:
    down = replace(BROKEN, load_balancer=Answers(relay, relay, relay), redirected=True, relay=(RELAY, relay))
    assert conclude(down) is Code.RelayDown
    assert conclude(replace(down, controller=DOWN)) is Code.ControllerDown


def test_the_wrong_version() -> None:
    relayed = replace(BROKEN, load_balancer=Answers(EMPTY, EMPTY, EMPTY), redirected=True)
    assert conclude(replace(relayed, proxy="v2", controller=ONLY_V1)) is Code.WrongVersion
    assert conclude(replace(relayed, proxy="v1", controller=ONLY_V2)) is Code.WrongVersion
    through = replace(BROKEN, vip=False, in_rules=False, controller=ONLY_V2, load_balancer=ONLY_V2)
    assert conclude(through) is Code.WrongVersion


@pytest.mark.parametrize("redirected", [True, False])
def test_a_controller_that_does_not_read_the_header_affects_a_node_whose_connections_fail(
    redirected: bool,  # noqa: FBT001 - by nodeagent's relay, or by the load balancer itself
) -> None:
    fails = replace(
        BROKEN, load_balancer=Answers(NOT_TLS, NOT_TLS, NOT_TLS), controller=PLAIN, redirected=redirected
    )
    assert conclude(fails) is Code.ControllerWithoutProxy
    assert path_finding(service("blue"), "", fails).verdict is CheckVerdict.AFFECTED
    by_name = ("site.example.com", RELAY, NOT_TLS)
    only_by_name = replace(fails, load_balancer=PLAIN, redirected=False, relay=(RELAY, NOT_TLS), name=by_name)
    assert conclude(only_by_name) is Code.ControllerWithoutProxy


def test_a_controller_that_does_not_read_the_header_is_a_warning_where_connections_work() -> None:
    works = replace(BROKEN, load_balancer=PLAIN, controller=PLAIN)
    finding = path_finding(service("blue"), "", works)
    assert finding.code is Code.WorksWithoutProxy
    assert finding.verdict is CheckVerdict.WARNING
    assert "loadBalancers.ignore" in "\n".join(finding.remedy)


def test_the_controller_is_down() -> None:
    assert conclude(replace(BROKEN, load_balancer=DOWN, controller=DOWN)) is Code.ControllerDown


@pytest.mark.parametrize("silence", [REFUSED, TIMEOUT, ProbeOutcome(Ending.UNREACHABLE)])
def test_the_load_balancer_is_down(silence: ProbeOutcome) -> None:
    down = replace(BROKEN, load_balancer=Answers(silence, silence, silence), vip=False, in_rules=False)
    assert conclude(down) is Code.LoadBalancerDown


def test_the_load_balancer_has_no_healthy_target() -> None:
    cut = replace(BROKEN, load_balancer=Answers(RESET, RESET, EMPTY), vip=False, in_rules=False)
    assert conclude(cut) is Code.LoadBalancerCut


def test_what_has_no_known_signature_is_said_to_have_none() -> None:
    mute = Answers(EMPTY, EMPTY, EMPTY)
    assert conclude(replace(BROKEN, load_balancer=mute, controller=mute)) is Code.PathUnclear
    never_asked = PathObservation(BALANCER, "v1", tls=False, load_balancer=Answers())
    assert conclude(never_asked) is Code.PathUnclear


def test_a_load_balancer_that_is_not_known_to_send_the_line() -> None:
    unknown = replace(BROKEN, proxy=None)
    assert conclude(unknown) is Code.Undetected
    fine = replace(unknown, load_balancer=PLAIN, controller=Answers())
    assert conclude(fine) is Code.ShortCircuitedAndFine
    assert conclude(replace(fine, in_rules=False)) is Code.ThroughLoadBalancer
    assert conclude(replace(unknown, load_balancer=DOWN, controller=DOWN)) is Code.ControllerDown
    mute = Answers(EMPTY, EMPTY, EMPTY)
    assert conclude(replace(unknown, load_balancer=mute, controller=mute)) is Code.PathUnclear


def test_the_finding_names_the_port_and_shows_what_was_asked() -> None:
    finding = path_finding(service("blue"), "https", replace(BROKEN, relay=(RELAY, REFUSED)))
    assert finding.subject == "192.0.2.1:443 (https)"
    text = "\n".join(finding.evidence)
    assert "TLS to 192.0.2.1:443: plain: reset in the TLS handshake; with PROXY v1: HTTP 200" in text
    assert "straight to the ClusterIP 10.96.0.7:443" in text
    assert "this node's relay 169.254.66.7:443: connection refused" in text


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(BROKEN, proxy=None), "list ingress/blue in loadBalancers.services (v1)"),
        (
            replace(BROKEN, proxy=None, controller=ONLY_V2, load_balancer=ONLY_V2),
            "loadBalancers.services (v2)",
        ),
        (replace(BROKEN, controller=ONLY_V2), "make the load balancer send PROXY v2"),
        (replace(BROKEN, controller=PLAIN), "loadBalancers.ignore"),
        (replace(BROKEN, controller=DOWN), "pods behind Service ingress/blue"),
    ],
)
def test_the_fix_names_what_to_change(seen: PathObservation, words: str) -> None:
    assert words in "\n".join(path_finding(service("blue"), "", seen).remedy)
