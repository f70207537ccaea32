"""What a pod is answered: the names that are ours, and none of their neighbours."""

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.coredns.managed_block import by_templates, with_blocks
from tests.apiserver.listener import free_ports
from tests.cases import cases_of
from tests.coredns import corpus
from tests.coredns.real import COREDNS, ask, serving
from tests.coredns.resolving import PASSED_ON, model_answer

CASES = cases_of(__file__, "cases.yaml")
ANSWERS = {name: tuple(map(ip_address, at)) for name, at in CASES["block"].items()}


@pytest.fixture(scope="module", params=["model", "real"])
def answer_to(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], str]]:
    """Ask the model, and a real CoreDNS: `COREDNS=/path/to/coredns make test`; no package brings one."""
    port, other = free_ports(2)
    corefile = with_blocks(CASES["user"].format(port=port, other_port=other), by_templates(ANSWERS))
    if request.param == "model":
        yield partial(model_answer, corefile)
    elif not COREDNS:
        pytest.skip("COREDNS=/path/to/coredns is not given: no real CoreDNS")
    else:
        with serving(corefile, tmp_path_factory.mktemp("coredns"), port, "unrelated.example.net"):
            # Real resolvers ask in any case.
            yield lambda name, kind: ask(port, name.upper(), kind)


@pytest.mark.parametrize(
    ("name", "kind", "answer"),
    [
        *CASES["answered"],
        *((*neighbour, PASSED_ON) for neighbour in CASES["neighbours"]),
        ("unrelated.example.net", "A", "192.0.2.99"),
    ],
)
def test_a_name_in_the_block_is_answered_and_no_other(
    answer_to: Callable[[str, str], str], name: str, kind: str, answer: str
) -> None:
    assert answer_to(name, kind) == answer


@given(st.permutations(list(ANSWERS)))
def test_the_lines_do_not_depend_on_the_order_of_the_names(names: list[str]) -> None:
    assert by_templates({name: ANSWERS[name] for name in names}) == by_templates(ANSWERS)


def test_five_thousand_names_stay_few_expressions_and_well_below_the_limit_of_a_config_map() -> None:
    answers = {
        f"site-{number:04}.team{number % 10}.example.com": (ip_address("169.254.66.17"),)
        for number in range(5000)
    }
    lines = by_templates(answers)
    text = with_blocks(corpus.corefile("kubeadm"), lines)
    assert len(text) < 300_000
    assert sum(line.lstrip().startswith("match ") for line in lines) == 3 * 100
    for number in (0, 4321, 4999):
        name = f"site-{number:04}.team{number % 10}.example.com"
        assert model_answer(text, name) == "169.254.66.17"
    assert model_answer(text, "site-0001.team2.example.com") == PASSED_ON
