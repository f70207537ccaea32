import pytest

from nodeagent.doctor.findings import EXIT_CODES, Code, Finding, summarize
from tests.cases import cases_of


def _found(*codes: Code) -> list[Finding]:
    return [Finding.of(code, f"subject{number}", f"seen {code.value}") for number, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "exit_code", "words"), cases_of(__file__, "verdicts.yaml")["sentences"], ids=str
)
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
