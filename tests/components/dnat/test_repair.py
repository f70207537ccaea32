import json
import re
from dataclasses import replace

import pytest

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatState
from nodeagent.components.node import UndoneError
from nodeagent.model.desired import Desired, DnatRules
from tests.cases import cases_of
from tests.components.converging import add
from tests.components.dnat.network import Namespace
from tests.components.dnat.test_nft import many
from tests.components.dnat.world import LB, NODE, RELAY, World, apply, guarded, redirect

TABLE = "inet nodeagent"
DAMAGE = [
    pytest.param(backend, action, damage, id=name)
    for backend, by_action in cases_of(__file__, "damage.yaml").items()
    for action, damages in by_action.items()
    for name, damage in damages.items()
]


@pytest.mark.parametrize(("name", "action", "damage"), DAMAGE)
def test_others_changes_are_seen_and_repaired(node: Namespace, name: str, action: str, damage: str) -> None:
    backend: DnatBackend = NftablesBackend() if name == "nftables" else IptablesBackend()
    displaced = action == "displaced"
    apply(backend, guarded())
    before, listed = backend.read(), _listed(node)
    (node.nft if name == "nftables" else node.legacy)(f"{damage}\n")
    change = apply(backend, guarded())
    assert bool(change.before.damage) == (action != "alter")
    assert change.action == ("repair" if displaced else action)
    assert change.displaced == change.before.displaced == displaced
    assert not displaced or "-j ACCEPT" in node.rules()
    assert str(change)
    assert (backend.read(), _listed(node)) == (before, listed)
    assert not apply(backend, guarded())


@pytest.mark.parametrize("rule", ["accept", 'accept comment "this node and its pods only"'])
def test_a_rule_that_is_replaced_in_its_place_is_seen(node: Namespace, rule: str) -> None:
    """Even with the words and the number that nodeagent's has."""
    backend = NftablesBackend()
    apply(backend, guarded())
    listed = json.loads(node.output("nft -j list chain inet nodeagent guard"))["nftables"]
    number = next(item["rule"]["handle"] for item in listed if "rule" in item)
    node.nft(f"replace rule {TABLE} guard handle {number} {rule}")
    assert apply(backend, guarded()).action == "repair"
    assert not apply(backend, guarded())


def test_rules_in_another_order_are_seen(node: Namespace) -> None:
    backend = NftablesBackend()
    apply(backend, guarded())
    whole = node.output("nft list table inet nodeagent")
    rules = re.search(r"chain output \{\n.*?;.*?\n(.*?)\n\t\}", whole, re.DOTALL)
    assert rules
    first, second, *rest = rules[1].splitlines()
    again = "\n".join(f"add rule {TABLE} output {rule}" for rule in (second, first, *rest))
    node.nft(f"flush chain {TABLE} output\n{again}")
    assert apply(backend, guarded()).action == "repair"
    assert node.output("nft list table inet nodeagent") == whole


def test_a_deleted_table_is_made_again(world: World) -> None:
    backend = NftablesBackend()
    apply(backend, guarded())
    world.node.nft(f"delete table {TABLE}")
    assert backend.read() == DnatState()
    assert world.node.answer(LB[4], 443) == f"lb {NODE[4]}"
    assert apply(backend, guarded()).action == "create"
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


def test_rules_missing_afterwards_are_an_error(node: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_rules_of_others_among_several_jumps_stay(node: Namespace) -> None:
    """Each jump is removed by its place, not the first one that looks like it."""
    backend = IptablesBackend()
    apply(backend, guarded())
    others = [f"-A PREROUTING -s 10.9.9.{number}/32 -j ACCEPT" for number in range(4)]
    jumps = ["-j NODEAGENT-PREROUTING", "-i eth7 -j NODEAGENT-PREROUTING", "-j NODEAGENT-PREROUTING"]
    between = "\n".join(f"{other}\n-A PREROUTING {jump}" for other, jump in zip(others, jumps, strict=False))
    node.legacy(f"*nat\n{between}\n{others[-1]}\nCOMMIT\n")
    apply(backend, guarded())
    listed = node.output("iptables-legacy -t nat -S PREROUTING").splitlines()
    assert listed == ["-P PREROUTING ACCEPT", "-A PREROUTING -j NODEAGENT-PREROUTING", *others]


def test_chains_that_nothing_leads_to_any_more_are_removed(node: Namespace) -> None:
    backend = IptablesBackend()
    apply(backend, guarded())
    for table in ("mangle", "nat"):
        node.legacy(f"*{table}\n-F PREROUTING\n-F INPUT\n-F OUTPUT\n-F POSTROUTING\nCOMMIT\n")
    assert "NODEAGENT-" in node.rules()
    apply(backend, DnatRules())
    assert "NODEAGENT-" not in node.rules()


def test_a_rule_inserted_before_nodeagents_loses_its_packets_again(world: World) -> None:
    """What it is all for: a jump of kube-proxy's before ours sends the node to the pods, without the line."""
    backend = IptablesBackend()
    apply(backend, guarded())
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    world.node.legacy(
        f"*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d {LB[4]}/32 -p tcp -m tcp --dport 443 -j DNAT "
        f"--to-destination {RELAY[4]}:444\n-I OUTPUT -j KUBE-SERVICES\nCOMMIT\n"
    )
    assert world.node.answer(LB[4], 443) == "refused"
    apply(backend, guarded())
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


def test_the_rules_are_what_iptables_lists_and_can_restore(node: Namespace) -> None:
    """The transaction's text and iptables-save agree, and a saved table is one that can be restored."""
    backend = IptablesBackend()
    more = (*guarded().redirects, *many(60).redirects, redirect("2001:db8::1", RELAY[6]))
    desired = replace(guarded(), redirects=more, users=250)
    text = backend.script(apply(backend, desired))
    state, standing = backend.read(), _ours(node)
    assert standing == _as_listed(text)
    saved = {4: node.output("iptables-legacy-save"), 6: node.output("ip6tables-legacy-save")}
    apply(backend, DnatRules())
    for family in (4, 6):
        node.legacy(saved[family], family=family)
    assert backend.read() == state


def _ours(node: Namespace) -> set[str]:
    return {line for line in node.rules().splitlines() if line.startswith("-A") and "NODEAGENT" in line}


def _as_listed(text: str) -> set[str]:
    """The transaction's additions as iptables-save writes them: no jump's place, one mask of a host less."""
    lines = [re.sub(r"^-I (\S+) \d+ ", r"-A \1 ", line) for line in text.splitlines()]
    lines = [re.sub(r"(--ctorigdst \S+)/(32|128) ", r"\1 ", line) for line in lines]
    return {line for line in lines if line.startswith("-A")}


def _listed(node: Namespace) -> tuple[set[str], str]:
    return _ours(node), node.output("nft list ruleset")
