import pytest

from nodeagent.components.dnat.nftables import NftablesBackend, NftProgram
from nodeagent.components.dnat.state import DnatBackend, DnatState, NotConverged
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import NODE, World, apply, guarded

RULE = "meta l4proto tcp dnat ip to ip daddr . tcp dport map @lb4"
TABLE = "inet nodeagent"
RULES = {
    "a flushed table": f"flush table {TABLE}",
    "a flushed chain": f"flush chain {TABLE} output",
    "an extra rule": f"add rule {TABLE} output tcp dport 22 accept",
    "an extra rule in front": f"insert rule {TABLE} output ip daddr 203.0.113.10 return",
    "a rule twice": f"add rule {TABLE} output {RULE}",
    "an altered rule": f"flush chain {TABLE} output\n"
    f'add rule {TABLE} output oifname "eth0" {RULE}\n'
    f"add rule {TABLE} output dnat ip6 to ip6 daddr . tcp dport map @lb6",
    "rules in the wrong order": f"flush chain {TABLE} output\n"
    f"add rule {TABLE} output dnat ip6 to ip6 daddr . tcp dport map @lb6\nadd rule {TABLE} output {RULE}",
    "a translation with a flag": f"flush chain {TABLE} output\n"
    f"add rule {TABLE} output {RULE} random\n"
    f"add rule {TABLE} output dnat ip6 to ip6 daddr . tcp dport map @lb6",
    "a missing chain": f"delete chain {TABLE} prerouting",
    "a flushed guard": f"flush chain {TABLE} guard",
    "a flushed guard after translations": f"flush chain {TABLE} guard_input",
    "a guard after translations that lets pass": f"insert rule {TABLE} guard_input ct state new accept",
    "a missing guard": f"delete chain {TABLE} guard",
    "a guard that lets pass": f"insert rule {TABLE} guard accept",
    "a missing set of the guard": f"flush table {TABLE}\ndelete set {TABLE} admitted6",
    "a missing map": f"flush table {TABLE}\ndelete map {TABLE} lb6",
}
IN_THE_WAY = {
    "an extra chain": f"add chain {TABLE} extra {{ type filter hook output priority 0; policy drop; }}",
    "an extra set": f"add set {TABLE} extra {{ type ipv4_addr; }}",
    "an extra map": f"add map {TABLE} extra {{ type ipv4_addr : verdict; }}",
    "an extra counter": f"add counter {TABLE} extra",
    "a dormant table": f"add table {TABLE} {{ flags dormant; }}",
    "another policy": f"add chain {TABLE} output {{ policy drop; }}",
    "a range as pods": f"add element {TABLE} pods4 {{ 10.9.0.1-10.9.0.6 }}",
    "a guard of another kind": f"delete chain {TABLE} guard\n"
    f"add chain {TABLE} guard {{ type filter hook input priority -300; }}",
    "another priority": f"delete chain {TABLE} output\n"
    f"add chain {TABLE} output {{ type nat hook output priority -99; }}\nadd rule {TABLE} output {RULE}\n"
    f"add rule {TABLE} output dnat ip6 to ip6 daddr . tcp dport map @lb6",
    "another type of map": f"flush table {TABLE}\ndelete map {TABLE} lb4\n"
    f"add map {TABLE} lb4 {{ type ipv4_addr : ipv4_addr; elements = {{ 203.0.113.10 : 169.254.66.9 }} }}",
    "another type of set": f"flush table {TABLE}\ndelete set {TABLE} pods4\n"
    f"add set {TABLE} pods4 {{ type ipv4_addr; }}",
    "a set that forgets": f"flush table {TABLE}\ndelete set {TABLE} pods4\n"
    f"add set {TABLE} pods4 {{ type ipv4_addr; flags interval, timeout; timeout 1h; }}",
    "a map of limited size": f"flush table {TABLE}\ndelete map {TABLE} lb6\n"
    f"add map {TABLE} lb6 {{ type ipv6_addr . inet_service : ipv6_addr . inet_service; size 2; }}",
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


ALL = (
    [("repair", name, script) for name, script in RULES.items()]
    + [("rebuild", name, script) for name, script in IN_THE_WAY.items()]
    + [("alter", name, script) for name, script in OF_ELEMENTS.items()]
)


@pytest.fixture
def backend() -> NftablesBackend:
    """The backend whose table this is about."""
    return NftablesBackend()


@pytest.mark.parametrize(("action", "damage"), [(one[0], one[2]) for one in ALL], ids=[one[1] for one in ALL])
def test_damage_is_seen_and_repaired(node: Namespace, backend: DnatBackend, action: str, damage: str) -> None:
    """By one transaction; then all is as it was, and nothing more is to do."""
    apply(backend, guarded())
    before = backend.read()
    node.nft(damage)
    assert bool(backend.read().damage) == (action != "alter")
    repair = apply(backend, guarded())
    assert repair.action == action
    assert str(repair)
    assert backend.read() == before
    assert not apply(backend, guarded())


def test_a_deleted_table_is_made_again(world: World, backend: DnatBackend) -> None:
    """And packets go the right way again."""
    apply(backend, guarded())
    world.node.nft(f"delete table {TABLE}")
    assert backend.read() == DnatState()
    assert world.node.answer("203.0.113.10", 443) == f"lb {NODE[4]}"
    assert apply(backend, guarded()).action == "create"
    assert world.node.answer("203.0.113.10", 443) == f"relay {NODE[4]}"


class _Meddler(NftProgram):
    """Flushes the table after each transaction, as another program might."""

    def run(self, script: str, *, only_check: bool = False) -> None:
        super().run(script, only_check=only_check)
        super().run(f"flush chain {TABLE} output")


@pytest.mark.usefixtures("node")
def test_rules_that_are_missing_afterwards_are_an_error() -> None:
    """Accepted is not enough: the table is read back."""
    with pytest.raises(NotConverged, match="the rules of chain output are altered"):
        apply(NftablesBackend(_Meddler()), guarded())
