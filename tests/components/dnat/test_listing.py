"""Listings as other versions of nft print them; those of the installed one come from the kernel elsewhere."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.components.dnat.nft_listing import state_of
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatState
from nodeagent.errors import ApplyError
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import apply, both_families

Items = list[dict[str, Any]]


@pytest.fixture
def listing(node: Namespace) -> Items:
    """What the installed nft prints of the table."""
    apply(NftablesBackend(), both_families())
    items: Items = json.loads(node.output("nft -j list table inet nodeagent"))["nftables"]
    return items


def _of(kind: str, listing: Items) -> Items:
    return [item[kind] for item in listing if kind in item]


def _translations(listing: Items) -> Items:
    return [rule for rule in _of("rule", listing) if "dnat" in rule["expr"][-1]]


def _match(key: str, value: object) -> dict[str, Any]:
    return {"match": {"op": "==", "left": {"meta": {"key": key}}, "right": value}}


def _state(listing: Items) -> DnatState:
    return state_of(json.dumps({"nftables": listing}).encode())


def _l4proto_printed(listing: Items) -> None:
    for rule in _translations(listing):
        rule["expr"].insert(0, _match("l4proto", "tcp"))


def _l4proto_as_number(listing: Items) -> None:
    for rule in _translations(listing):
        rule["expr"].insert(-1, _match("l4proto", 6))


def _nfproto_printed(listing: Items) -> None:
    for rule in _of("rule", listing):
        family = "ipv6" if "ip6" in json.dumps(rule["expr"]) else "ipv4"
        rule["expr"].insert(0, _match("nfproto", family))


def _type_flags_printed(listing: Items) -> None:
    # src/json.c, nat_type_flags_json() up to nftables 1.0.2
    for rule in _translations(listing):
        rule["expr"][-1]["dnat"]["type_flags"] = "concat"


def _look_up_as_in(listing: Items) -> None:
    for rule in _of("rule", listing):
        for expression in rule["expr"]:
            if expression.get("match", {}).get("op") == "==":
                expression["match"]["op"] = "in"


def _types_the_other_way(listing: Items) -> None:
    # src/json.c, set_dtype_json(): from nftables 1.1 on, a list is used for a map's values, too
    for one in _of("map", listing):
        for key in ("type", "map"):
            one[key] = one[key].split(" . ") if isinstance(one[key], str) else " . ".join(one[key])


def _lone_flag_bare(listing: Items) -> None:
    for one in _of("set", listing):
        one["flags"] = one["flags"][0]


def _fields_unheard_of(listing: Items) -> None:
    for item in listing:
        for body in item.values():
            body["new-in-nft-2"] = {"a": [1]}


@pytest.mark.parametrize(
    "vary",
    [
        _l4proto_printed,
        _l4proto_as_number,
        _nfproto_printed,
        _type_flags_printed,
        _look_up_as_in,
        _types_the_other_way,
        _lone_flag_bare,
        _fields_unheard_of,
    ],
)
def test_other_versions_spellings_mean_the_same(listing: Items, vary: Callable[[Items], None]) -> None:
    """No damage is seen where there is none: a rebuild a pass would be the price."""
    expected = _state(listing)
    vary(listing)
    assert _state(listing) == expected
    assert not expected.damage


def test_a_wrong_family_is_not_taken_for_an_implied_one(listing: Items) -> None:
    """`meta nfproto ipv6` before an IPv4 translation would never match."""
    _of("rule", listing)[0]["expr"].insert(0, _match("nfproto", "ipv6"))
    assert _state(listing).damage == ("the rules of chain output are altered",)


def test_a_guard_only_for_tcp_is_not_nodeagents(listing: Items) -> None:
    """There `meta l4proto tcp` is implied by nothing: other protocols would pass."""
    guard = next(rule for rule in _of("rule", listing) if rule["chain"] == "guard")
    guard["expr"].insert(0, _match("l4proto", "tcp"))
    assert _state(listing).damage == ("the rules of chain guard are altered",)


@pytest.mark.parametrize(
    ("kind", "element"),
    [
        ("map", [{"concat": ["203.0.113.1", 443]}, "drop"]),
        ("map", [{"concat": ["203.0.113.1", 443]}, {"prefix": {"addr": "10.0.0.0", "len": 8}}]),
        ("map", [{"concat": ["example.org", 443]}, {"concat": ["169.254.66.1", 443]}]),
        ("set", {"range": ["10.0.0.1", "10.0.0.7"]}),
        ("set", "example.org"),
    ],
)
def test_an_unknown_element_is_damage(listing: Items, kind: str, element: object) -> None:
    """It is rebuilt, not a crash."""
    _of(kind, listing)[0]["elem"] = [element]
    (damage,) = _state(listing).damage
    assert "has an element that can't be nodeagent's" in damage


@pytest.mark.parametrize("text", [b"", b"Error", b"[]", b'{"nftables": [{"chain": {"name": 5}}]}'])
def test_no_listing_at_all_is_an_error(text: bytes) -> None:
    """One that says what to compare."""
    with pytest.raises(ApplyError, match="nothing was changed"):
        state_of(text)
