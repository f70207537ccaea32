from dataclasses import replace

import pytest

from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.desired import DnatRules
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.world import (
    KUBE_PROXY,
    LB,
    LB_BEHIND_NODE,
    NODE,
    POD,
    POD_RANGE,
    RELAY,
    World,
    answers,
    apply,
    both_families,
    redirect,
)

FAMILIES = pytest.mark.parametrize("family", [4, 6])


@FAMILIES
def test_the_node_reaches_the_relay_with_the_entry_and_the_load_balancer_without(
    world: World, backend: DnatBackend, family: int
) -> None:
    """Without, with, without, with; and the client's own address survives. Another port is left alone."""
    for _ in range(2):
        assert world.node.answer(LB[family], 443) == f"lb {NODE[family]}"
        apply(backend, both_families())
        assert world.node.answer(LB[family], 443) == f"relay {NODE[family]}"
        assert world.node.answer(LB[family], 444) == "refused"
        apply(backend, DnatRules())


def test_kube_proxy_at_its_own_priority_loses(world: World) -> None:
    """From node and pod, in whichever order the tables were made."""
    backend = NftablesBackend()
    world.node.nft(KUBE_PROXY)
    assert world.node.answer(LB[4], 443).startswith("pod ")
    apply(backend, both_families())
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert world.pod.answer(LB[4], 443) == f"relay {POD[4]}"
    world.node.nft("delete table ip kube-proxy\n" + KUBE_PROXY)
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


def test_what_comes_from_outside_for_the_load_balancer_is_not_touched(
    world: World, backend: DnatBackend
) -> None:
    """It may have the PROXY header already: only kube-proxy handles it."""
    world.node.nft(KUBE_PROXY)
    entry = redirect(LB_BEHIND_NODE, RELAY[4])
    apply(backend, DnatRules((entry,), (POD_RANGE[4],)))
    assert world.outside.answer(LB_BEHIND_NODE, 443).startswith("pod ")
    assert world.node.answer(LB_BEHIND_NODE, 443).startswith("relay ")


@pytest.mark.parametrize("damage", [(), ("an occasion to write all rules anew",)])
def test_no_connection_slips_through_while_entries_change(
    world: World, backend: DnatBackend, damage: tuple[str, ...]
) -> None:
    """Connections made all the while, whichever generation of the table they meet, reach a relay."""
    apply(backend, both_families())
    with answers(world) as heard:
        for step in range(30):
            changed = redirect(LB[4], RELAY[4], ObjectRef("Service", "x", str(step)))
            state = replace(backend.read(), damage=damage)
            backend.run(difference(state, DnatRules((changed,))))
    assert len(heard) > 20
    assert set(heard) == {f"relay {NODE[4]}"}
