"""What is sent to the relay reaches it, though others' rules take that port of every local address."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.desired import DnatRules
from tests.components.dnat.world import LB, NODE, POD, RELAY, World, apply, guarded

_HERE = Path(__file__)
HOST_PORT = _HERE.with_name("host_port.rules").read_text()
HOST_PORT_BY_NFTABLES = _HERE.with_name("host_port.nft").read_text()


RULES = pytest.mark.parametrize(
    "rules", [guarded(), replace(guarded(), redirects=())], ids=["dnat", "hosts alone"]
)


@RULES
def test_host_ports_take_nothing_of_relays(world: World, backend: DnatBackend, rules: DnatRules) -> None:
    """Straight to its address, as hosts lines and CoreDNS lead, and by the load balancer's."""
    world.node.legacy(HOST_PORT)
    before = world.node.rules()
    assert world.node.answer(RELAY[4], 443).startswith("pod ")
    for _ in range(2):
        apply(backend, rules)
        assert not difference(backend.read(), rules)
        assert world.node.answer(RELAY[4], 443) == f"relay {RELAY[4]}"
        assert world.pod.answer(RELAY[4], 443) == f"relay {POD[4]}"
        # Its own address, and so all other programs' host ports, are left unchanged.
        assert world.node.answer(NODE[4], 443).startswith("pod ")
        apply(backend, guarded())
        assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    apply(backend, DnatRules())
    assert world.node.answer(RELAY[4], 443).startswith("pod ")
    assert world.node.rules() == before


@RULES
def test_a_host_port_of_nftables_takes_nothing_either(world: World, rules: DnatRules) -> None:
    """Whichever table was made first, and without any redirect, as with `dnat.backend: none`."""
    world.node.nft(HOST_PORT_BY_NFTABLES)
    backend = NftablesBackend()
    apply(backend, rules)
    assert world.node.answer(RELAY[4], 443) == f"relay {RELAY[4]}"
    assert world.pod.answer(RELAY[4], 443) == f"relay {POD[4]}"
    world.node.nft("delete table inet cni_hostport\n" + HOST_PORT_BY_NFTABLES)
    assert world.node.answer(RELAY[4], 443) == f"relay {RELAY[4]}"
    assert backend.read().damage == ()
