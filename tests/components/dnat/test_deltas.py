import json
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatState, comment_of, difference, normalised
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.model.objects import ObjectRef
from tests.cases import cases_of
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import KUBE_PROXY, LB, RELAY, apply, plain, redirect

NAMES = st.builds(ObjectRef, st.just("Service"), st.text(max_size=70), st.text(max_size=70))
# Few addresses, so that entries meet, and the widest, narrowest and odd ones.
ENDS = st.one_of(
    st.tuples(
        st.ip_addresses(v=4, network="203.0.113.0/29"), st.ip_addresses(v=4), st.integers(1, 65535), NAMES
    ),
    st.tuples(
        st.ip_addresses(v=6, network="::ffff:0:0/125"), st.ip_addresses(v=6), st.sampled_from([1, 443]), NAMES
    ),
)
REDIRECTS = ENDS.map(lambda one: Redirect(Endpoint(one[0], one[2]), Endpoint(one[1], one[2]), one[3]))
NETWORKS = st.builds(
    lambda address, length: ip_network((address, length % (address.max_prefixlen + 1)), strict=False),
    st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(v=6, network="fd00::/8"),
    st.sampled_from([0, 1, 7, 8, 16, 24, 31, 32, 48, 64, 127, 128]),
)
DESIRED = st.builds(
    DnatRules,
    st.lists(REDIRECTS, max_size=8, unique_by=lambda one: one.match).map(tuple),
    st.lists(NETWORKS, max_size=5).map(tuple),
    st.lists(NETWORKS, max_size=3).map(tuple),
    st.lists(NETWORKS, max_size=3).map(tuple),
)
GUARDED = (ip_network("169.254.66.0/24"), ip_network("fd68:6169:7270::/112"))
FOREIGN_CHAINS = Path(__file__).with_name("foreign.rules").read_text()
IN_ONE_NAMESPACE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _matches(state: DnatRules) -> set[Endpoint]:
    return {one.match for one in state.redirects}


def _meaning(state: DnatRules) -> tuple[object, ...]:
    entries = {(one.match, one.to, comment_of(one.load_balancer)) for one in state.redirects}
    return entries, set(state.pods), set(state.guarded), set(state.admitted)


@pytest.mark.usefixtures("node")
@IN_ONE_NAMESPACE
@given(desired=DESIRED)
def test_any_state_leads_to_any_other_in_halves(backend: DnatBackend, desired: DnatRules) -> None:
    """What one example leaves is where the next starts; each half does its part and no other."""
    before = backend.read()
    assert not before.damage
    growth = difference(before, desired, keep=True)
    backend.run(growth)
    between = backend.read()
    assert _meaning(between.rules) == _meaning(growth.desired)
    assert _matches(between.rules) == _matches(before.rules) | _matches(desired)
    rest = difference(between, desired)
    assert not difference(between, desired, keep=True)
    assert rest.added.redirects == ()
    backend.run(rest)
    after = backend.read()
    assert _meaning(after.rules) == _meaning(normalised(desired))
    assert not difference(after, desired)
    assert after.present == bool(desired)


def test_a_delta_touches_its_own_elements_only(node: Namespace) -> None:
    """Handles show it: anything that is made again gets another one."""
    backend = NftablesBackend()
    apply(backend, plain())
    before = _without_elements(node)
    more = DnatRules((*plain().redirects, redirect("203.0.113.11", "169.254.66.6")), ())
    change = apply(backend, more)
    assert (len(change.added.redirects), len(change.removed.pods)) == (1, 2)
    assert change.removed.redirects == ()
    assert _without_elements(node) == before


def test_foreign_tables_are_never_touched(node: Namespace, backend: DnatBackend) -> None:
    """Neither by making, nor by changing, nor by removing; `ip nodeagent` is not ours either."""
    node.nft(KUBE_PROXY + "table ip nodeagent { chain output { counter; }; }")
    for family in (4, 6):
        node.legacy(FOREIGN_CHAINS, family=family)
    before = node.rules()
    apply(backend, plain())
    apply(backend, DnatRules((redirect("203.0.113.11", "169.254.66.6"),), guarded=GUARDED))
    if backend.name == "nftables":
        node.nft("flush chain inet nodeagent output")
    else:
        node.legacy("*nat\n-F NODEAGENT-OUTPUT\nCOMMIT\n")
    apply(backend, plain())
    apply(backend, DnatRules())
    assert node.rules() == before


@pytest.mark.parametrize(("entries", "problem"), cases_of(__file__, "cases.yaml")["contradictions"])
def test_entries_that_contradict_are_refused(entries: list[tuple[str, str, int]], problem: str) -> None:
    redirects = tuple(redirect(match, to, port=port) for match, to, port in entries)
    with pytest.raises(ApplyError, match=problem):
        normalised(DnatRules(redirects))


def test_an_entry_of_another_program_keeps_no_change_back() -> None:
    """Nothing of ours is at port 0, but the kernel takes it."""
    foreign = DnatRules((redirect("192.0.2.77", "169.254.66.9", port=0),))
    growth = difference(DnatState(foreign), plain(), keep=True)
    assert _matches(growth.desired) > _matches(normalised(plain()))


def _without_elements(node: Namespace) -> list[dict[str, dict[str, object]]]:
    listing = json.loads(node.output("nft -j list table inet nodeagent"))["nftables"]
    for item in listing:
        for body in item.values():
            body.pop("elem", None)
    return list(listing)


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
    node.nft("table ip other { chain c { counter; }; }")
    other = node.rules()
    desired = DnatRules((redirect(LB[4], RELAY[4], ObjectRef("Service", name, name)),))
    apply(backend, desired)
    assert [one.match for one in backend.read().rules.redirects] == [desired.redirects[0].match]
    assert not difference(backend.read(), desired)
    apply(backend, DnatRules())
    assert node.rules() == other


def test_the_longest_name_is_kept_and_a_longer_one_cut(node: Namespace, backend: DnatBackend) -> None:
    longest = ObjectRef("Service", "n" * 63, "s" * 63)
    absurd = ObjectRef("Service", "n" * 300, "s" * 300)
    apply(backend, DnatRules((redirect(LB[4], RELAY[4], longest), redirect(LB[6], RELAY[6], absurd))))
    four, six = backend.read().rules.redirects
    assert four.load_balancer == longest
    assert six.load_balancer.name == "n" * 128 == comment_of(absurd)
