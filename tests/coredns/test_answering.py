"""What a pod is answered: the names that are ours, and none of their neighbours."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.coredns.managed_block import with_blocks
from nodeagent.coredns.naming import by_templates
from tests.coredns import corpus
from tests.coredns.resolving import NO_RECORDS, PASSED_ON, Question, model_answer

ONE, TWO, SIX = (ip_address(text) for text in ("169.254.66.17", "169.254.66.42", "fd68:6169:7270::11"))
ANSWERS = {
    "app.example.com": (ONE,),
    "example.com": (ONE,),
    "both.example.com": (ONE, SIX),
    "other.example.org": (TWO,),
    "intranet": (TWO,),
    "*.apps.example.com": (ONE,),
    "pinned.apps.example.com": (TWO,),
}
TEMPLATES = with_blocks(corpus.corefile("kubeadm"), by_templates(ANSWERS))

CASES = [
    ("app.example.com", "A", "169.254.66.17"),
    ("app.example.com", "AAAA", NO_RECORDS),
    ("app.example.com", "HTTPS", NO_RECORDS),
    ("example.com", "A", "169.254.66.17"),
    ("both.example.com", "A", "169.254.66.17"),
    ("both.example.com", "AAAA", "fd68:6169:7270::11"),
    ("other.example.org", "A", "169.254.66.42"),
    ("intranet", "A", "169.254.66.42"),
    ("any.apps.example.com", "A", "169.254.66.17"),
    ("any.apps.example.com", "AAAA", NO_RECORDS),
    ("dbs.apps.example.com", "A", "169.254.66.17"),
    ("pinned.apps.example.com", "A", "169.254.66.42"),
]
NEIGHBOURS = [
    ("example.com", "MX"),
    ("app.example.com", "TXT"),
    ("app.example.net", "A"),
    ("xapp.example.com", "A"),
    ("a.app.example.com", "A"),
    ("appxexample.com", "A"),
    ("app.example.com.example.org", "A"),
    ("app.example.com.default.svc.cluster.local", "A"),
    ("apps.example.com", "A"),
    ("a.b.apps.example.com", "A"),
    ("com", "A"),
    ("kubernetes.default.svc.cluster.local", "A"),
]


@pytest.mark.parametrize(("name", "kind", "answer"), CASES)
def test_a_name_in_the_block_is_answered(name: str, kind: str, answer: str) -> None:
    assert model_answer(TEMPLATES, Question(name, kind)) == answer


@pytest.mark.parametrize(("name", "kind"), NEIGHBOURS)
def test_a_neighbour_is_not(name: str, kind: str) -> None:
    assert model_answer(TEMPLATES, Question(name, kind)) == PASSED_ON


@given(st.permutations(list(ANSWERS)))
def test_the_lines_do_not_depend_on_the_order_of_the_names(names: list[str]) -> None:
    assert by_templates({name: ANSWERS[name] for name in names}) == by_templates(ANSWERS)


def test_five_thousand_names_stay_few_expressions_and_well_below_the_limit_of_a_config_map() -> None:
    answers = {f"site-{number:04}.team{number % 10}.example.com": (ONE,) for number in range(5000)}
    lines = by_templates(answers)
    text = with_blocks(corpus.corefile("kubeadm"), lines)
    assert len(text) < 300_000
    assert sum(line.lstrip().startswith("match ") for line in lines) == 3 * 100
    for number in (0, 4321, 4999):
        name = f"site-{number:04}.team{number % 10}.example.com"
        assert model_answer(text, Question(name)) == "169.254.66.17"
    assert model_answer(text, Question("site-0001.team2.example.com")) == PASSED_ON
