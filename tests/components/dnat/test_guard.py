"""Only this node and its pods reach the relay addresses."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend, NftError
from nodeagent.components.dnat.state import DnatBackend, difference, normalised
from nodeagent.model.desired import NO_RULES, Desired
from tests.components.converging import add, converge
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import LB, NODE, OUTSIDE, POD, RELAY, World, apply, guarded, plain, redirect

FAMILIES = pytest.mark.parametrize("family", [4, 6])
OTHER_POD = {4: "10.244.2.5/24", 6: "fd00:244:2::5/64"}
# Seconds in which a dropped connection gets no answer; the first that is let through may wait for a neighbor.
PATIENCE = 0.7
CLUSTER_IP = {4: "10.96.0.10", 6: "fd00:96::10"}
PLACES = {family: (NODE[family], CLUSTER_IP[family]) for family in (4, 6)}


@FAMILIES
def test_strangers_reach_no_relay_with_a_guard(world: World, backend: DnatBackend, family: int) -> None:
    """Without, with, without: it is the guard that drops, and it leaves nothing behind.

    Pods of other nodes are strangers: theirs is another range, even where all pods' ranges are one.
    """
    other_pod = OTHER_POD[family].partition("/")[0]
    world.outside.ip(f"addr add {OTHER_POD[family]} dev eth0{' nodad' * (family == 6)}")
    world.node.ip(f"route add {other_pod} via {OUTSIDE[family]}")
    # The guard exists without any redirect, too, as before the relay's first listener does.
    for rules in (plain(), guarded(), plain(), replace(guarded(), redirects=())):
        apply(backend, rules)
        assert world.outside.answer(NODE[family], 443) == "refused"
        for source in (OUTSIDE[family], other_pod):
            expected, patience = ("nothing", PATIENCE) if rules.guarded else (f"relay {source}", 3.0)
            assert world.outside.answer(RELAY[family], 443, patience, source=source) == expected


@FAMILIES
def test_the_guard_holds_for_others_translations(world: World, backend: DnatBackend, family: int) -> None:
    """As kube-proxy makes them: a NodePort, a Service whose EndpointSlice names the relay, another's port."""
    word, to = ("ip", RELAY[4]) if family == 4 else ("ip6", f"[{RELAY[6]}]")
    rules = "".join(f"{word} daddr {one} tcp dport 30443 dnat {word} to {to}:443; " for one in PLACES[family])
    world.node.nft(
        f"table inet kube-proxy {{\nchain out {{ type nat hook output priority -100; {rules}}}\n"
        f"chain pre {{ type nat hook prerouting priority -100; {rules}}}\n}}\n"
    )
    world.outside.ip(f"route add {CLUSTER_IP[family]} via {NODE[family]}")
    clients = (world.node, world.outside, world.pod)
    apply(backend, plain())
    for place in (NODE[family], CLUSTER_IP[family]):
        for client in clients:
            assert client.answer(place, 30443).startswith("relay ")
    apply(backend, guarded())
    for place in (NODE[family], CLUSTER_IP[family]):
        for client in clients:
            assert client.answer(place, 30443, PATIENCE) == "nothing"
    assert world.node.answer(LB[family], 443) == f"relay {NODE[family]}"
    assert world.pod.answer(LB[family], 443) == f"relay {POD[family]}"


@FAMILIES
def test_the_guard_holds_for_redirected_addresses(world: World, backend: DnatBackend, family: int) -> None:
    """Where another program leads the load balancer's address to the relay, for connections from outside."""
    word, to = ("ip", RELAY[4]) if family == 4 else ("ip6", f"[{RELAY[6]}]")
    world.node.nft(
        "table inet kube-proxy {\nchain pre { type nat hook prerouting priority -100; "
        f"{word} daddr {CLUSTER_IP[family]} tcp dport 443 dnat {word} to {to}:443; }}\n}}\n"
    )
    world.outside.ip(f"route add {CLUSTER_IP[family]} via {NODE[family]}")
    mine = (*guarded().redirects, redirect(CLUSTER_IP[family], RELAY[family]))
    apply(backend, replace(plain(), redirects=mine))
    assert world.outside.answer(CLUSTER_IP[family], 443) == f"relay {OUTSIDE[family]}"
    apply(backend, replace(guarded(), redirects=mine))
    assert world.outside.answer(CLUSTER_IP[family], 443, PATIENCE) == "nothing"
    assert world.node.answer(CLUSTER_IP[family], 443) == f"relay {NODE[family]}"


def test_a_guard_is_read_back_and_named_in_the_change(node: Namespace, backend: DnatBackend) -> None:
    change = apply(backend, guarded())
    assert "+ guard 169.254.66.0/24" in str(change)
    assert "+ admitted to the relay 10.244.1.0/24" in str(change)
    removal = difference(backend.read(), plain())
    assert "- guard fd68:6169:7270::/112" in str(removal)


_HOLD = """
import select, socket, sys
held = []
for address in sys.argv[1].split(","):
    for _ in range(8):
        held.append(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
        held[-1].setblocking(False)
        held[-1].connect_ex((address, 443))
waiting = set(held)
while ready := select.select([], [*waiting], [], 0.3)[1]:
    waiting -= {*ready}
print(len(held) - len(waiting), flush=True)
sys.stdin.read()
"""


@FAMILIES
def test_local_users_leave_connections_for_root(world: World, backend: DnatBackend, family: int) -> None:
    """By the load balancer's address and straight; what they close, they can open again."""
    apply(backend, replace(guarded(), users=5))
    assert not difference(backend.read(), replace(guarded(), users=5))
    assert not difference(backend.read(), NO_RULES, keep=True)
    for _ in range(2):
        with _held_by(65534, LB[family], RELAY[family]) as count:
            assert count == 5
            assert world.node.answer(LB[family], 443) == f"relay {NODE[family]}"
            assert world.pod.answer(LB[family], 443) == f"relay {POD[family]}"
    with _held_by(0, LB[family], RELAY[family]) as count:
        assert count == 16
    apply(backend, replace(guarded(), users=7))
    with _held_by(65534, LB[family]) as count:
        assert count == 7
    apply(backend, guarded())
    with _held_by(65534, LB[family]) as count:
        assert count == 8


def test_local_users_leave_a_place_for_the_kubelets_probes(world: World, backend: DnatBackend) -> None:
    """One that opens connections all the time kept every probe out, and the kubelet ended agent and relay."""
    rules = replace(guarded(), users=250, probed=(443, 9468))
    apply(backend, rules)
    assert not difference(backend.read(), rules)
    with world.node.inside(), socket.create_server(("127.0.0.1", 443), backlog=200):
        with _held_by(65534, *["127.0.0.1"] * 6) as count:
            assert count == 32
            with _held_by(0, "127.0.0.1") as of_root:
                assert of_root == 8
        apply(backend, replace(rules, probed=(9468,)))
        with _held_by(65534, *["127.0.0.1"] * 6) as count:
            assert count == 48


@contextmanager
def _held_by(user: int, *addresses: str) -> Iterator[int]:
    """A process of this user with eight connections to each address; yields how many are there."""
    command = ["/usr/bin/python3", "-c", _HOLD, ",".join(addresses)]
    with subprocess.Popen(
        command, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        yield int(process.stdout.readline())
        process.stdin.close()


DESIRED = Desired(dnat=replace(guarded(), users=5))


def _refuse_the_limit(monkeypatch: pytest.MonkeyPatch, times: int = 1000) -> None:
    run, left = NftablesBackend.execute, [*range(times)]

    def refusing(nft: NftablesBackend, script: str, *options: str) -> bytes:
        if "ct count" in script and left:
            left.pop()
            raise NftError("refused")
        return run(nft, script, *options)

    monkeypatch.setattr(NftablesBackend, "execute", refusing)


def test_the_guard_ends_no_redirect_of_other_backends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold until the relay is ready and this one's take over."""
    apply(Dnat("iptables"), guarded())
    _refuse_the_limit(monkeypatch)
    dnat = Dnat("nftables")
    assert add(dnat, Desired(dnat=replace(DESIRED.dnat, redirects=(), pods=()))).failure == ""
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert converge(dnat, DESIRED) == ""
    assert not IptablesBackend().read().present
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


@pytest.mark.parametrize("failures", [1, 2, 1000])
def test_a_kernel_without_the_limit_for_users_gets_all_other_rules_and_is_asked_again_later(
    node: Namespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failures: int
) -> None:
    """As one that has no nft_connlimit; two failures look like one. A single one does not cost the limit."""
    _refuse_the_limit(monkeypatch, failures)
    dnat = Dnat("nftables")
    assert converge(dnat, DESIRED) == ""
    assert len(caplog.records) == (failures > 1)
    assert not dnat.diff(dnat.read(), DESIRED)
    if failures > 1:
        assert normalised(guarded()) == dnat.read().rules
        now = time.monotonic()
        monkeypatch.setattr("nodeagent.components.dnat.component.time.monotonic", lambda: now + 601)
        assert converge(dnat, DESIRED) == ""
    limited = "ct count over 5 " in node.output("nft list table inet nodeagent")
    assert limited == (failures < 1000)
