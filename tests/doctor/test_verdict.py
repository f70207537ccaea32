import pytest

from nodeagent.doctor.findings import EXIT_CODES, Code, Finding, summarize


def _found(*codes: Code) -> list[Finding]:
    return [Finding.of(code, f"subject{number}", f"seen {code.value}") for number, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "exit_code", "words"),
    [
        ((), 0, "is not affected: the cluster has no load balancer"),
        ((Code.NotProxy,), 0, "no load balancer with an address is known to send"),
        ((Code.HostnameOnly, Code.ThroughLoadBalancer), 0, "work without a fix"),
        ((Code.HostnameOnly, Code.NotThisNode), 0, "known to send the PROXY header is short-circuited"),
        (
            (Code.LoadBalancerRemedied, Code.RemediedByDnat),
            0,
            "is healthy: 1 load balancer is short-circuited",
        ),
        ((Code.LoadBalancerRemedied,) * 2, 0, "2 load balancers are short-circuited, and fixed"),
        (
            (Code.ShortCircuitedByObject, Code.NotThisNode),
            2,
            "is affected, judging by its objects alone: subject0",
        ),
        (
            (Code.ShortCircuitedByObject, Code.AgentInSync),
            2,
            "; nodeagent fleet shows how many load balancers",
        ),
        ((Code.ShortCircuitedByObject, Code.AgentNotInSync), 2, "affected and not fixed yet: subject0"),
        ((Code.LoadBalancerRemedied, Code.AgentInSync, Code.NotThisNode), 0, "is healthy: 1 load balancer"),
        ((Code.ProxyUnknown, Code.NotThisNode), 1, "could not determine: subject0"),
        ((Code.NotProxy, Code.ObjectsUnreadable), 1, "could not determine: subject1"),
        ((Code.NotProxy, Code.ObjectsSkipped), 0, "unknown: objects"),
        ((Code.LoadBalancerRemedied, Code.PodsNotServed), 2, "affected and not fixed yet: subject1"),
        ((Code.LoadBalancerRemedied, Code.DataPlaneUnclear), 0, "unknown: data-plane"),
        ((Code.PathUnclear, Code.LoadBalancerUnclear), 1, "(and 1 more)"),
        ((Code.ShortCircuited,), 2, "affected and not fixed yet: subject0"),
        ((Code.PathUnclear, Code.StaleHostsLine), 2, "subject1"),
        (
            (Code.DataPlaneUnclear, Code.PodsUnclear, Code.LoadBalancerRemedied),
            0,
            "is short-circuited, and fixed by nodeagent; unknown: data-plane, pods",
        ),
        ((Code.Tolerated, Code.WorksWithoutProxy), 0, "work without a fix; unknown: path"),
        ((Code.PodsUnclear, Code.PathUnclear), 1, "seen PathUnclear; unknown: pods"),
        ((Code.PodsUnclear, Code.ShortCircuited), 2, "seen ShortCircuited; unknown: pods"),
    ],
)
def test_the_sentence_and_the_exit_code(codes: tuple[Code, ...], exit_code: int, words: str) -> None:
    overall, sentence = summarize("node node1", _found(*codes))
    assert EXIT_CODES[overall] == exit_code
    assert sentence.startswith("node node1")
    assert words in sentence


def test_the_sentence_names_the_cause_and_not_its_consequences() -> None:
    found = _found(Code.ShortCircuitedAndCut, Code.StaleHostsLine, Code.ShortCircuited)
    assert "subject2: seen ShortCircuited" in summarize("node", found)[1]


@pytest.mark.parametrize("agent", [(), (Code.AgentAbsent,), (Code.AgentUnknown,)])
def test_the_fleet_is_named_only_where_agents_answered(agent: tuple[Code, ...]) -> None:
    assert "fleet" not in summarize("this cluster", _found(Code.ShortCircuitedByObject, *agent))[1]
