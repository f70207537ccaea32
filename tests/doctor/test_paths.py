"""From what was asked and answered to the way a connection takes, and to one sentence: verdicts.yaml."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from nodeagent.doctor.findings import EXIT_CODES, CheckStatus, Code, Finding, summarize
from nodeagent.doctor.paths import Answers, PathObservation, Target, conclude, path_finding
from nodeagent.model.addresses import Endpoint
from nodeagent.sources.connection_tests import Ending, ProbeOutcome
from tests.cases import cases_of
from tests.plan.made_up import point, service

_VERDICTS: dict[str, Any] = cases_of(__file__, "verdicts.yaml")
_ENDINGS = {
    each: ProbeOutcome(Ending[said[0]], *said[1:]) if said else None
    for each, said in _VERDICTS["endings"].items()
}
BALANCER = Endpoint(ip_address("192.0.2.1"), 443)
SERVER = Endpoint(ip_address("10.96.0.7"), 443)
RELAY = Endpoint(ip_address("169.254.66.7"), 443)
BLUE = service("blue")
TARGET = Target(BLUE, BLUE.ports[0], BALANCER, "v1", vip=True, host="", tls=(True,), server=SERVER)
_CASES: dict[str, list[dict[str, Any]]] = _VERDICTS["paths"]


def observed(**differing: Any) -> PathObservation:  # noqa: ANN401 - a case of verdicts.yaml
    """What that file describes, but for what differs."""
    case: dict[str, Any] = {"load_balancer": "header", "controller": "header"}
    case |= {"tls": True, "redirected": False, "in_rules": True} | differing
    target = {key: case.pop(key) for key in ("proxy", "vip", "service") if key in case}
    for asked in ("load_balancer", "controller"):
        said = case[asked]
        ends = _VERDICTS["answers"].get(said, (said,) * 3) if isinstance(said, str) else said
        case[asked] = Answers(*(_ENDINGS[each] for each in ends))
    if "relay" in case:
        case["relay"] = (RELAY, _ENDINGS[case["relay"]])
    return PathObservation(replace(TARGET, **target), **case)


@pytest.mark.parametrize(
    ("code", "case"), [(code, case) for code, cases in _CASES.items() for case in cases], ids=str
)
def test_what_is_concluded(code: str, case: dict[str, Any]) -> None:
    assert conclude(observed(**case)) == Code[code]


def test_where_a_controller_does_not_read_the_header_what_works_here_says_nothing_of_outside() -> None:
    failing = path_finding(observed(controller="plain", load_balancer="not TLS"))
    assert failing.status is CheckStatus.AFFECTED
    working = path_finding(observed(controller="plain", load_balancer="plain"))
    assert working.status is CheckStatus.CANNOT_TELL
    assert "loadBalancers.ignore" in "\n".join(working.remedy)


@pytest.mark.parametrize(("case", "words"), _VERDICTS["fixes"])
def test_the_fix_names_what_to_change(case: dict[str, Any], words: str) -> None:
    assert words in "\n".join(path_finding(observed(**case)).remedy)


def test_one_that_publishes_a_hostname_and_does_not_answer_its_own_target_can_be_served() -> None:
    """The controller is there and wants the header: a time-out from here alone is the hairpin."""
    mute: dict[str, Any] = {"load_balancer": "timeout", "vip": False, "in_rules": False}
    named = path_finding(
        observed(**mute, service=service("blue", points=(point(hostname="lb.example.org"),)))
    )
    assert named.code == Code.LoadBalancerDown
    assert "list ingress/blue in loadBalancers.services with hostnameOnly: true" in "\n".join(named.remedy)
    assert "hostnameOnly" not in "\n".join(path_finding(observed(**mute)).remedy)
    assert conclude(observed(**mute, relay="ok", name="www.example.net")) is Code.RemediedByHosts


def _found(*codes: Code) -> list[Finding]:
    return [Finding.of(code, f"subject{number}", f"seen {code.value}") for number, code in enumerate(codes)]


@pytest.mark.parametrize(("codes", "exit_code", "words"), _VERDICTS["sentences"], ids=str)
def test_the_sentence_and_the_exit_code(codes: list[str], exit_code: int, words: str) -> None:
    overall, sentence = summarize("node node1", _found(*(Code[each] for each in codes)))
    assert EXIT_CODES[overall] == exit_code
    assert sentence.startswith("node node1")
    assert words in sentence


def test_the_sentence_names_the_cause_and_not_its_consequences() -> None:
    found = _found(Code.ShortCircuitedAndCut, Code.StaleHostsLine, Code.ShortCircuited)
    assert "subject2: seen ShortCircuited" in summarize("node", found)[1]


@pytest.mark.parametrize("agent", [(), (Code.AgentAbsent,), (Code.AgentUnknown,)])
def test_the_fleet_is_named_only_where_agents_answered(agent: tuple[Code, ...]) -> None:
    assert "fleet" not in summarize("this cluster", _found(Code.ShortCircuitedByObject, *agent))[1]
