"""Only this node and its pods reach the relay addresses."""

from dataclasses import replace

import pytest

from nodeagent.components.dnat.backend import DnatBackend
from nodeagent.components.dnat.state import difference
from nodeagent.model.desired import DnatRules
from tests.components.dnat.world import LB, NODE, OUTSIDE, POD, RELAY, World, apply, both_families, guarded

FAMILIES = pytest.mark.parametrize("family", [4, 6])
OTHER_POD = {4: "10.244.2.5/24", 6: "fd00:244:2::5/64"}
# Seconds in which a dropped connection gets no answer; one that is let through gets its answer in some ms.
PATIENCE = 0.7


@FAMILIES
def test_a_stranger_reaches_the_relay_only_without_the_guard(
    world: World, backend: DnatBackend, family: int
) -> None:
    """Without, with, without: it is the guard that drops, and it leaves nothing behind."""
    apply(backend, both_families())
    assert world.outside.answer(RELAY[family], 443) == f"relay {OUTSIDE[family]}"
    apply(backend, guarded())
    assert world.outside.answer(RELAY[family], 443, PATIENCE) == "nothing"
    apply(backend, both_families())
    assert world.outside.answer(RELAY[family], 443) == f"relay {OUTSIDE[family]}"


@FAMILIES
def test_the_node_and_its_pods_pass_the_guard(world: World, backend: DnatBackend, family: int) -> None:
    """By the load balancer's address and straight, as names out of CoreDNS lead them."""
    apply(backend, guarded())
    for address in (LB[family], RELAY[family]):
        assert world.pod.answer(address, 443) == f"relay {POD[family]}"
    assert world.node.answer(LB[family], 443) == f"relay {NODE[family]}"
    assert world.node.answer(RELAY[family], 443) == f"relay {RELAY[family]}"


@FAMILIES
def test_pods_that_are_not_redirected_pass_the_guard(world: World, backend: DnatBackend, family: int) -> None:
    """`dnat.pods: false`: they may still have the relay's address from CoreDNS."""
    apply(backend, replace(guarded(), pods=()))
    assert world.pod.answer(RELAY[family], 443) == f"relay {POD[family]}"
    assert world.pod.answer(LB[family], 443) == f"lb {POD[family]}"


@FAMILIES
def test_pods_of_other_nodes_are_strangers(world: World, backend: DnatBackend, family: int) -> None:
    """Theirs is another range, even where all pods' ranges are one."""
    world.outside.ip(f"addr add {OTHER_POD[family]} dev eth0{' nodad' * (family == 6)}")
    source = OTHER_POD[family].partition("/")[0]
    world.node.ip(f"route add {source} via {OUTSIDE[family]}")
    apply(backend, both_families())
    assert world.outside.answer(RELAY[family], 443, source=source) == f"relay {source}"
    apply(backend, guarded())
    assert world.outside.answer(RELAY[family], 443, PATIENCE, source=source) == "nothing"


@FAMILIES
def test_the_guard_exists_without_any_redirect(world: World, backend: DnatBackend, family: int) -> None:
    """As before the relay's first listener does; and it is removed without a trace."""
    before = world.node.rules()
    apply(backend, replace(guarded(), redirects=()))
    assert world.outside.answer(RELAY[family], 443, PATIENCE) == "nothing"
    assert world.pod.answer(RELAY[family], 443) == f"relay {POD[family]}"
    assert world.outside.answer(NODE[family], 443) == "refused"
    apply(backend, DnatRules())
    assert world.node.rules() == before


@pytest.mark.usefixtures("node")
def test_a_guard_is_read_back_and_named_in_the_change(backend: DnatBackend) -> None:
    """Status and the dry run report it."""
    change = apply(backend, guarded())
    assert "+ guard 169.254.66.0/24" in str(change)
    assert "+ admitted to the relay 10.244.1.0/24" in str(change)
    state = backend.read()
    assert (state.rules.guarded, state.rules.admitted) == (guarded().guarded, guarded().admitted)
    assert not difference(state, guarded())
    removal = difference(state, both_families())
    assert "- guard fd68:6169:7270::/112" in str(removal)
