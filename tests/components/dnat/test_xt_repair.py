"""What other programs do to our chains in legacy tables, and what iptables itself says of them."""

import re
from dataclasses import replace

import pytest

from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.model.desired import NO_RULES, DnatRules
from tests.components.dnat.network import Namespace
from tests.components.dnat.test_size import many
from tests.components.dnat.world import LB, NODE, RELAY, World, apply, guarded, redirect

ENTRY = f"NODEAGENT-LB -d {LB[4]}/32 -p tcp -m tcp --dport 443"
ALTERED = {
    "a flushed chain": "*nat\n-F NODEAGENT-OUTPUT\nCOMMIT\n",
    "an extra rule": "*nat\n-A NODEAGENT-OUTPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n",
    "an extra rule in front": f"*nat\n-I NODEAGENT-LB -d {LB[4]} -j RETURN\nCOMMIT\n",
    "an altered rule": "*nat\n-F NODEAGENT-OUTPUT\n"
    "-A NODEAGENT-OUTPUT -o eth0 -p tcp -j NODEAGENT-LB\nCOMMIT\n",
    "a rule with a match of its own": "*nat\n-F NODEAGENT-OUTPUT\n"
    "-A NODEAGENT-OUTPUT -p tcp -m statistic --mode random --probability 0.5 -j NODEAGENT-LB\nCOMMIT\n",
    "a range of ports": f"*nat\n-A NODEAGENT-LB -d {LB[4]} -p tcp -m tcp --dport 1:9 -j RETURN\nCOMMIT\n",
    "a translation to a range": f"*nat\n-A NODEAGENT-LB -d {LB[4]} -p tcp -m tcp --dport 8 -j DNAT "
    "--to-destination 1.1.1.1-1.1.1.9:443\nCOMMIT\n",
    "a chain more": "*nat\n:NODEAGENT-MORE - [0:0]\n-A NODEAGENT-MORE -j RETURN\nCOMMIT\n",
    "no jump": "*nat\n-D OUTPUT -j NODEAGENT-OUTPUT\nCOMMIT\n",
    "a jump for one interface": "*nat\n-D OUTPUT -j NODEAGENT-OUTPUT\n"
    "-I OUTPUT -o eth0 -j NODEAGENT-OUTPUT\nCOMMIT\n",
    "a jump twice": "*nat\n-A PREROUTING -j NODEAGENT-PREROUTING\nCOMMIT\n",
    "no guard": "*mangle\n-F NODEAGENT-GUARD\nCOMMIT\n",
    "a guard that lets pass": "*mangle\n-I NODEAGENT-GUARD -p tcp -j RETURN\nCOMMIT\n",
    "a translated connection that passes": "*mangle\n-F NODEAGENT-TRANSLATED\nCOMMIT\n",
    "no look after translations": "*mangle\n-F INPUT\nCOMMIT\n",
    "a guard that nothing leads to": "*mangle\n-F PREROUTING\nCOMMIT\n",
}
DISPLACED = {
    "a rule before the jump": "*nat\n-I OUTPUT -p tcp -m tcp --dport 443 -j ACCEPT\nCOMMIT\n",
    "rules before both jumps": "*nat\n-I OUTPUT -j ACCEPT\n-I PREROUTING -j ACCEPT\nCOMMIT\n",
    "a rule before the guard's second look": "*mangle\n-I INPUT -j ACCEPT\nCOMMIT\n",
    "a rule before the guard": "*mangle\n-I PREROUTING -j ACCEPT\nCOMMIT\n",
}
OF_ENTRIES = {
    "a deleted entry": f'*nat\n-D {ENTRY} -m comment --comment "ingress-nginx/controller" -j DNAT '
    f"--to-destination {RELAY[4]}:443\nCOMMIT\n",
    "a foreign entry": "*nat\n-A NODEAGENT-LB -d 203.0.113.77/32 -p tcp -m tcp --dport 80 -j DNAT "
    "--to-destination 169.254.66.9:80\nCOMMIT\n",
    "everybody admitted": "*mangle\n-I NODEAGENT-GUARD -j RETURN\nCOMMIT\n",
    "other pods": "*nat\n-A NODEAGENT-PREROUTING -s 10.0.0.0/8 -p tcp -j NODEAGENT-LB\nCOMMIT\n",
}


@pytest.fixture
def backend() -> IptablesBackend:
    """The backend whose chains this is about."""
    return IptablesBackend()


ALL = {
    name: (kind, damage)
    for kind, damages in (("damage", ALTERED), ("displaced", DISPLACED), ("drift", OF_ENTRIES))
    for name, damage in damages.items()
}


@pytest.mark.parametrize(("kind", "damage"), ALL.values(), ids=ALL.keys())
def test_what_others_change_is_seen_and_repaired(
    node: Namespace, backend: IptablesBackend, kind: str, damage: str
) -> None:
    apply(backend, guarded())
    before, rules = backend.read(), _ours(node)
    node.legacy(damage)
    change = apply(backend, guarded())
    state = change.before
    assert kind != "damage" or state.damage
    assert bool(state.displaced) == bool(change.displaced) == (kind == "displaced")
    assert kind != "damage" or change.action == "repair"
    assert kind != "drift" or change.added != NO_RULES or change.removed != NO_RULES
    assert kind != "displaced" or "another rule is before the jump" in str(change)
    assert kind != "displaced" or "-j ACCEPT" in node.rules()
    assert (backend.read(), _ours(node)) == (before, rules)
    assert not apply(backend, guarded())


def test_rules_of_others_among_several_jumps_stay(node: Namespace, backend: IptablesBackend) -> None:
    """Each jump is removed by its place, not the first one that looks like it."""
    apply(backend, guarded())
    others = [f"-A PREROUTING -s 10.9.9.{number}/32 -j ACCEPT" for number in range(4)]
    jumps = ["-j NODEAGENT-PREROUTING", "-i eth7 -j NODEAGENT-PREROUTING", "-j NODEAGENT-PREROUTING"]
    between = "\n".join(f"{other}\n-A PREROUTING {jump}" for other, jump in zip(others, jumps, strict=False))
    node.legacy(f"*nat\n{between}\n{others[-1]}\nCOMMIT\n")
    apply(backend, guarded())
    listed = node.output("iptables-legacy -t nat -S PREROUTING").splitlines()
    assert listed == ["-P PREROUTING ACCEPT", "-A PREROUTING -j NODEAGENT-PREROUTING", *others]


def test_a_rule_inserted_before_nodeagents_loses_its_packets_again(
    world: World, backend: IptablesBackend
) -> None:
    """What it is all for: a jump of kube-proxy's before ours sends the node to the pods, without the line."""
    apply(backend, guarded())
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    world.node.legacy(
        f"*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d {LB[4]}/32 -p tcp -m tcp --dport 443 -j DNAT "
        f"--to-destination {RELAY[4]}:444\n-I OUTPUT -j KUBE-SERVICES\nCOMMIT\n"
    )
    assert world.node.answer(LB[4], 443) == "refused"
    apply(backend, guarded())
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


def test_the_rules_are_what_iptables_lists_and_can_restore(node: Namespace, backend: IptablesBackend) -> None:
    """The transaction's text and iptables-save agree, and a saved table is one that can be restored."""
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
    """Our rules as iptables-save lists them."""
    return {line for line in node.rules().splitlines() if line.startswith("-A") and "NODEAGENT" in line}


def _as_listed(text: str) -> set[str]:
    """The transaction's additions as iptables-save writes them: no jump's place, one mask of a host less."""
    lines = [re.sub(r"^-I (\S+) \d+ ", r"-A \1 ", line) for line in text.splitlines()]
    lines = [re.sub(r"(--ctorigdst \S+)/(32|128) ", r"\1 ", line) for line in lines]
    return {line for line in lines if line.startswith("-A")}
