"""Listings as other versions of nft print them; those of the installed one come from the kernel elsewhere."""

import json
from typing import Any

import pytest

from nodeagent.components.dnat.nft_table import state_of
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatState, normalised
from nodeagent.errors import ApplyError
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import apply, both_families

Items = list[dict[str, Any]]


@pytest.fixture
def listing(node: Namespace) -> Items:
    """What the installed nft prints of the table."""
    apply(NftablesBackend(), both_families())
    items: Items = json.loads(node.output("nft -j -n list table inet nodeagent"))["nftables"]
    return items


def test_addresses_are_translated_before_kube_proxy_does_and_guarded_before_and_after(listing: Items) -> None:
    """kube-proxy's chains are at -100, and the first that translates a connection wins."""
    hooked = {(one["type"], one["hook"], one["prio"]) for one in _of("chain", listing) if "hook" in one}
    assert hooked == {
        *(("nat", hook, -105) for hook in ("output", "prerouting")),
        ("filter", "prerouting", -300),
        *(("filter", hook, 0) for hook in ("input", "output")),
    }


def _of(kind: str, listing: Items) -> Items:
    return [item[kind] for item in listing if kind in item]


def _state(listing: Items) -> DnatState:
    return state_of(json.dumps({"nftables": listing}).encode())


def test_a_table_is_compared_with_what_the_same_nft_echoed(listing: Items) -> None:
    """Another version prints it differently: it is replaced once. No handle counts."""
    for item in listing:
        for body in item.values():
            body["handle"] = 7
    assert not _state(listing).compared(normalised(both_families())).damage
    _of("set", listing)[0]["type"] = {"typeof": "as nft 1.1.3 prints it"}
    assert _state(listing).compared(normalised(both_families())).damage


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
    _of(kind, listing)[0]["elem"] = [element]
    (damage,) = _state(listing).damage
    assert "has an element that can't be nodeagent's" in damage


@pytest.mark.parametrize("text", [b"", b"Error", b"[]", b'{"nftables": [{"chain": {"name": 5}}]}'])
def test_no_listing_at_all_is_an_error(text: bytes) -> None:
    with pytest.raises(ApplyError, match="nothing was changed"):
        state_of(text)
