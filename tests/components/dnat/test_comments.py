import pytest

from nodeagent.components.dnat.state import COMMENT_LIMIT, DnatBackend, comment_of, difference
from nodeagent.model.desired import DnatRules
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import LB, RELAY, apply, redirect

HOSTILE = [
    '"; flush ruleset; #',
    '" : 1.1.1.1 . 1 }\nflush ruleset\nadd table ip x #',
    "back\\slash\\",
    "$variable",
    "line\nbreak\r\x00\x1b[2J",
    "\N{LATIN SMALL LETTER E WITH ACUTE}\ud800",
    "'",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_inside_its_comment(node: Namespace, backend: DnatBackend, name: str) -> None:
    """The entry is made, other tables stay, and nothing is left to do."""
    node.nft("table ip other { chain c { counter; }; }")
    other = node.rules()
    desired = DnatRules((redirect(LB[4], RELAY[4], ObjectRef("Service", name, name)),))
    apply(backend, desired)
    assert [one.match for one in backend.read().rules.redirects] == [desired.redirects[0].match]
    assert not difference(backend.read(), desired)
    apply(backend, DnatRules())
    assert node.rules() == other


@pytest.mark.usefixtures("node")
def test_the_longest_name_is_kept_and_a_longer_one_cut(backend: DnatBackend) -> None:
    """Every Service that an API server admits is named in full."""
    longest = ObjectRef("Service", "n" * 63, "s" * 63)
    absurd = ObjectRef("Service", "n" * 300, "s" * 300)
    apply(backend, DnatRules((redirect(LB[4], RELAY[4], longest), redirect(LB[6], RELAY[6], absurd))))
    four, six = backend.read().rules.redirects
    assert four.load_balancer == longest
    assert six.load_balancer.name == "n" * COMMENT_LIMIT == comment_of(absurd)
