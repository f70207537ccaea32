import socket
from dataclasses import replace

import pytest

from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.desired import DnatRules
from nodeagent.model.objects import ObjectRef
from tests.components.dnat.world import LB, NODE, POD, RELAY, World, apply, guarded, plain, redirect
from tests.plan import made_up
from tests.testbed.waiting import wait_until


def test_no_connection_slips_through_while_entries_change(world: World, backend: DnatBackend) -> None:
    """Connections made all the while, whichever generation of the table they meet, reach a relay."""
    apply(backend, plain())
    with world.answers(world.node) as heard:
        for step in range(30):
            changed = redirect(LB[4], RELAY[4], ObjectRef("Service", "x", str(step)))
            apply(backend, DnatRules((changed,)))
        wait_until(lambda: len(heard) > 20, "twenty connections")
    assert set(heard) == {f"relay {NODE[4]}"}


@pytest.mark.parametrize("family", [4, 6])
def test_pods_are_redirected_on_these_interfaces(world: World, backend: DnatBackend, family: int) -> None:
    """The pod's is pod0. A change of the option alone is made, read back, and repaired."""
    for interfaces, relayed in (([], True), (["up0", "po"], False), (["up0", "po*"], True), (["pod0"], True)):
        planned = made_up.desired(options=made_up.config(f"dnat: {{interfaces: {interfaces}}}"))
        desired = replace(guarded(), options=planned.dnat.options)
        assert apply(backend, desired)
        assert not difference(backend.read(), desired)
        assert world.pod.answer(LB[family], 443) == f"{'relay' if relayed else 'lb'} {POD[family]}"
        assert world.node.answer(LB[family], 443) == f"relay {NODE[family]}"


def test_rules_that_are_made_again_fifty_times_end_no_connection(world: World, backend: DnatBackend) -> None:
    """Neither one that goes on meanwhile, nor new ones of the node or a pod.

    A new one that meets the commit of nftables' new table may miss the redirection: see `replacement`.
    """
    echoing = redirect(LB[4], RELAY[4], port=7)
    desired = replace(guarded(), redirects=(*guarded().redirects, echoing))
    apply(backend, desired)
    by_nft = backend.name == "nftables"
    alter = world.node.nft if by_nft else world.node.legacy
    rule = "insert rule inet nodeagent guard iif lo accept"
    damage = rule if by_nft else "*nat\n-A NODEAGENT-LB -p tcp -j RETURN\nCOMMIT\n"
    with (
        socket.create_server((RELAY[4], 7)) as listening,
        socket.create_connection((LB[4], 7), timeout=3) as client,
        listening.accept()[0] as server,
        world.answers(world.node) as of_node,
        world.answers(world.pod) as of_pod,
    ):
        wait_until(lambda: bool(of_node and of_pod), "the first connections of both")
        for _ in range(50):
            alter(damage)
            assert apply(backend, desired).action == "repair"
            client.sendall(b"still here")
            assert server.recv(100) == b"still here"
            server.sendall(b"so am I")
            assert client.recv(100) == b"so am I"
    heard = of_node + of_pod
    missed = [answer for answer in heard if answer in (f"lb {NODE[4]}", f"lb {POD[4]}")]
    assert min(len(of_node), len(of_pod)) > 20
    assert set(heard) - set(missed) == {f"relay {NODE[4]}", f"relay {POD[4]}"}
    assert len(missed) <= (len(heard) // 100 if backend.name == "nftables" else 0)
