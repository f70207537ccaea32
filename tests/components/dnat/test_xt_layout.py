"""How entries are spread over chains, judged by what a packet has to walk."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.dnat.state import normalised
from nodeagent.components.dnat.xt_layout import TREE, TableLayout, layout
from nodeagent.components.dnat.xt_rules import XtRule
from nodeagent.model.addresses import Endpoint, Family, IPAddress
from nodeagent.model.desired import DnatRules
from tests.components.dnat.world import redirect

ADDRESSES: dict[Family, st.SearchStrategy[IPAddress]] = {
    4: st.ip_addresses(v=4) | st.ip_addresses(v=4, network="203.0.113.0/25"),
    6: st.ip_addresses(v=6) | st.ip_addresses(v=6, network="::/121"),
}
RELAYS: dict[Family, str] = {4: "169.254.66.5", 6: "fd68:6169:7270::5"}


def walk(table: TableLayout, packet: Endpoint) -> tuple[Endpoint | None, int]:
    """Where a packet is sent to, and how many rules looked at it: as in the kernel, a chain's end returns."""
    seen = 0

    def through(chain: str) -> Endpoint | None:
        nonlocal seen
        for rule in table.chains[chain]:
            seen += 1
            if matches(rule, packet):
                found = rule.to or through(rule.target)
                if found is not None:
                    return found
        return None

    return through(TREE), seen


def matches(rule: XtRule, packet: Endpoint) -> bool:
    """Whether a rule's destination and port are the packet's."""
    place = rule.destination
    if isinstance(place, (IPv4Address, IPv6Address)):
        inside = place == packet.address
    else:
        inside = place is None or packet.address in place
    return inside and rule.port in (None, packet.port)


@pytest.mark.parametrize("family", [4, 6])
@given(data=st.data())
def test_every_entry_is_found_and_nothing_else(family: Family, data: st.DataObject) -> None:
    """However the addresses lie, and whatever their ports."""
    addresses = data.draw(st.lists(ADDRESSES[family], min_size=1, max_size=120, unique=True))
    entries = tuple(redirect(str(one), RELAYS[family], port=443 + i % 3) for i, one in enumerate(addresses))
    table = layout(normalised(DnatRules(entries)))[family, "nat"]
    for entry in entries:
        assert walk(table, entry.match)[0] == entry.to
    strangers = data.draw(st.lists(ADDRESSES[family], max_size=20))
    for stranger in set(strangers) - set(addresses):
        assert walk(table, Endpoint(stranger, 443))[0] is None


@pytest.mark.parametrize("first", ["198.18.0.0", "2001:db8::"])
def test_among_five_thousand_a_packet_walks_a_few_dozen_rules(first: str) -> None:
    """One that is redirected, and one next to it."""
    start = ip_address(first)
    family: Family = 4 if start.version == 4 else 6
    entries = tuple(redirect(str(start + i), RELAYS[family]) for i in range(5000))
    table = layout(normalised(DnatRules(entries)))[family, "nat"]
    assert max(walk(table, entry.match)[1] for entry in entries[::7]) <= 64
    assert walk(table, Endpoint(start + 5001, 443))[1] <= 64
    assert walk(table, Endpoint(ip_address("192.0.2.1" if family == 4 else "fd00::1"), 443))[1] <= 16


def test_one_entry_more_rewrites_one_chain() -> None:
    """So a delta costs the kernel's copy of the table and sixteen rules."""
    start = ip_address("198.18.0.0")
    entries = tuple(redirect(str(start + i), RELAYS[4]) for i in range(5000))
    before = layout(normalised(DnatRules(entries[:-1])))[4, "nat"].chains
    after = layout(normalised(DnatRules(entries)))[4, "nat"].chains
    assert sum(before.get(name) != rules for name, rules in after.items()) == 1
    assert set(before) == set(after)


def test_chain_names_are_short_enough() -> None:
    """XT_EXTENSION_MAXNAMELEN: 28 characters and a zero."""
    entries = tuple(redirect(f"2001:db8:{i:x}::1", RELAYS[6]) for i in range(200))
    names = layout(normalised(DnatRules(entries)))[6, "nat"].chains
    assert len(names) > 10
    assert all(len(name) <= 28 and name.startswith("NODEAGENT-") for name in names)
