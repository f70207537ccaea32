import json
import re

import pytest

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatState
from nodeagent.components.node import UndoneError
from nodeagent.model.desired import Desired
from tests.components.converging import add
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import NODE, World, apply, guarded

TABLE = "inet nodeagent"
DAMAGE = {
    "a flushed table": f"flush table {TABLE}",
    "an extra rule": f"add rule {TABLE} output tcp dport 22 accept",
    "an extra rule in front": f"insert rule {TABLE} output ip daddr 203.0.113.10 return",
    "a guard that lets pass": f"insert rule {TABLE} guard accept",
    "other rules with the same comments": f"flush chain {TABLE} output\n"
    + "".join(f'add rule {TABLE} output accept comment "load balancer to relay"\n' for _ in range(4)),
    "no mark": f"flush chain {TABLE} digest",
    "a mark more": f"add rule {TABLE} digest accept",
    "a missing chain": f"delete chain {TABLE} prerouting",
    "a missing set": f"flush table {TABLE}\ndelete set {TABLE} admitted6",
    "a missing map": f"flush table {TABLE}\ndelete map {TABLE} lb6",
    "an extra chain": f"add chain {TABLE} extra {{ type filter hook output priority 0; policy drop; }}",
    "an extra set": f"add set {TABLE} extra {{ type ipv4_addr; }}",
    "an extra map": f"add map {TABLE} extra {{ type ipv4_addr : verdict; }}",
    "an extra counter": f"add counter {TABLE} extra",
    "a dormant table": f"add table {TABLE} {{ flags dormant; }}",
    "another policy": f"add chain {TABLE} output {{ policy drop; }}",
    "a range as pods": f"add element {TABLE} pods4 {{ 10.9.0.1-10.9.0.6 }}",
    "another hook and priority": f"delete chain {TABLE} users\n"
    f"add chain {TABLE} users {{ type filter hook input priority -300; }}",
    "another type of map": f"flush table {TABLE}\ndelete map {TABLE} lb4\n"
    f"add map {TABLE} lb4 {{ type ipv4_addr : ipv4_addr; elements = {{ 203.0.113.10 : 169.254.66.9 }} }}",
    "a set that forgets": f"flush table {TABLE}\ndelete set {TABLE} pods4\n"
    f"add set {TABLE} pods4 {{ type ipv4_addr; flags interval, timeout; timeout 1h; }}",
    "a map of limited size": f"add map {TABLE} lb6 "
    "{ type ipv6_addr . inet_service : ipv6_addr . inet_service; size 2; }",
}
OF_ELEMENTS = {
    "a deleted element": f"delete element {TABLE} lb4 {{ 203.0.113.10 . 443 }}",
    "a flushed map": f"flush map {TABLE} lb4",
    "a wrong value": f"delete element {TABLE} lb4 {{ 203.0.113.10 . 443 }}\n"
    f"add element {TABLE} lb4 {{ 203.0.113.10 . 443 : 169.254.66.9 . 443 }}",
    "a range no more guarded": f"delete element {TABLE} guarded4 {{ 169.254.66.0/24 }}",
    "another address let through": f"add element {TABLE} balancers4 {{ 203.0.113.99 }}",
    "an address no longer let through": f"delete element {TABLE} balancers4 {{ 203.0.113.10 }}",
    "a stranger admitted": f"add element {TABLE} admitted4 {{ 192.0.2.0/24 }}",
    "a foreign element": f"add element {TABLE} lb4 {{ 192.0.2.77 . 80 : 169.254.66.9 . 80 }}",
    "a foreign comment": f"add element {TABLE} lb4 "
    "{ 192.0.2.77 . 80 comment \"who: 'me' @ 50%\" : 1.1.1.1 . 8 }",
    "a changed set": f"flush set {TABLE} pods4\nadd element {TABLE} pods4 {{ 10.0.0.0/8 }}",
    "a single address as pods": f"add element {TABLE} pods4 {{ 10.9.0.1 }}",
}


ALL = [("repair", *one) for one in DAMAGE.items()] + [("alter", *one) for one in OF_ELEMENTS.items()]


@pytest.fixture
def backend() -> NftablesBackend:
    """The backend whose table this is about."""
    return NftablesBackend()


@pytest.mark.parametrize(("action", "damage"), [(one[0], one[2]) for one in ALL], ids=[one[1] for one in ALL])
def test_damage_is_seen_and_repaired(node: Namespace, backend: DnatBackend, action: str, damage: str) -> None:
    apply(backend, guarded())
    before, whole = backend.read(), node.output("nft list table inet nodeagent")
    node.nft(damage)
    repair = apply(backend, guarded())
    assert bool(repair.before.damage) == (action != "alter")
    assert repair.action == action
    assert str(repair)
    assert backend.read() == before
    assert node.output("nft list table inet nodeagent") == whole
    assert not apply(backend, guarded())


@pytest.mark.parametrize("rule", ["accept", 'accept comment "this node and its pods only"'])
def test_a_rule_that_is_replaced_in_its_place_is_seen(
    node: Namespace, backend: DnatBackend, rule: str
) -> None:
    """Even with the words and the number that nodeagent's has."""
    apply(backend, guarded())
    listed = json.loads(node.output("nft -j list chain inet nodeagent guard"))["nftables"]
    number = next(item["rule"]["handle"] for item in listed if "rule" in item)
    node.nft(f"replace rule {TABLE} guard handle {number} {rule}")
    assert apply(backend, guarded()).action == "repair"
    assert not apply(backend, guarded())


def test_rules_in_another_order_are_seen(node: Namespace, backend: DnatBackend) -> None:
    apply(backend, guarded())
    whole = node.output("nft list table inet nodeagent")
    rules = re.search(r"chain output \{\n.*?;.*?\n(.*?)\n\t\}", whole, re.DOTALL)
    assert rules
    first, second, *rest = rules[1].splitlines()
    again = "\n".join(f"add rule {TABLE} output {rule}" for rule in (second, first, *rest))
    node.nft(f"flush chain {TABLE} output\n{again}")
    assert apply(backend, guarded()).action == "repair"
    assert node.output("nft list table inet nodeagent") == whole


def test_a_deleted_table_is_made_again(world: World, backend: DnatBackend) -> None:
    apply(backend, guarded())
    world.node.nft(f"delete table {TABLE}")
    assert backend.read() == DnatState()
    assert world.node.answer("203.0.113.10", 443) == f"lb {NODE[4]}"
    assert apply(backend, guarded()).action == "create"
    assert world.node.answer("203.0.113.10", 443) == f"relay {NODE[4]}"


def test_rules_that_are_missing_afterwards_are_an_error(
    node: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted is not enough: the table is read back. Another program flushes a chain after each change."""
    run = NftablesBackend.execute

    def meddled(nft: NftablesBackend, script: str, *options: str) -> bytes:
        printed = run(nft, script, *options)
        if "--check" not in options:
            node.nft(f"flush chain {TABLE} output")
        return printed

    monkeypatch.setattr(NftablesBackend, "execute", meddled)
    with pytest.raises(UndoneError, match="was added, altered or removed"):
        add(Dnat("nftables"), Desired(dnat=guarded()))
