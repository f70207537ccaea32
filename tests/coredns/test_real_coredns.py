"""The same questions as test_answering.py, asked of a real CoreDNS: `COREDNS=/path/to/coredns make test`.

No package of Debian's or Python's brings one, so without the variable these tests are skipped, visibly.
"""

from collections.abc import Iterator

import pytest

from nodeagent.coredns.managed_block import with_blocks
from nodeagent.coredns.naming import by_templates
from tests.coredns.real import COREDNS, ask, free_ports, serving
from tests.coredns.resolving import PASSED_ON
from tests.coredns.test_answering import ANSWERS, CASES, NEIGHBOURS

# What is not ours goes on to the user's hosts lines, and names unknown there to another server. That is a
# server block of its own: a `template` for every name would run before `hosts`, in any order.
USER = """\
.:{port} {{
    bind 127.0.0.1
    errors
    hosts {{
        192.0.2.99 unrelated.example.net
        fallthrough
    }}
    forward . 127.0.0.1:{other_port}
    reload
}}
.:{other_port} {{
    bind 127.0.0.1
    template IN ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def corefile_with_ours(port: int, other_port: int) -> str:
    """The user's Corefile with our block in it."""
    text = USER.format(port=port, other_port=other_port)
    return with_blocks(text, by_templates(ANSWERS))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a CoreDNS answers that was given our block."""
    if not COREDNS:
        pytest.skip("COREDNS=/path/to/coredns is not given: no real CoreDNS")
    chosen, other = free_ports(2)
    corefile = corefile_with_ours(chosen, other)
    with serving(corefile, tmp_path_factory.mktemp("coredns"), chosen, "unrelated.example.net"):
        yield chosen


@pytest.mark.parametrize(("name", "kind", "answer"), CASES)
def test_a_name_in_the_block_is_answered(port: int, name: str, kind: str, answer: str) -> None:
    assert ask(port, name, kind) == answer
    assert ask(port, name.upper(), kind) == answer


@pytest.mark.parametrize(("name", "kind"), NEIGHBOURS)
def test_a_neighbour_is_not(port: int, name: str, kind: str) -> None:
    assert ask(port, name, kind) == PASSED_ON


def test_a_name_of_the_user_s_is_the_user_s(port: int) -> None:
    assert ask(port, "unrelated.example.net", "A") == "192.0.2.99"
