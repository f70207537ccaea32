import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.components.dnat.component import Dnat, Option, choose
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend, NftablesWatch
from nodeagent.components.dnat.state import DnatBackend
from nodeagent.errors import ApplyError
from nodeagent.model.desired import NO_RULES, Desired
from tests.components.converging import add, converge
from tests.components.dnat.test_nft import fake_nft, only_path
from tests.components.dnat.world import KUBE_PROXY, LB, NODE, POD, World, apply, difference_of, guarded

BOTH_WAYS = pytest.mark.parametrize(("before", "after"), [("nftables", "iptables"), ("iptables", "nftables")])


def standing() -> list[str]:
    backends: list[DnatBackend] = [NftablesBackend(), IptablesBackend()]
    return [backend.name for backend in backends if backend.read().present]


@BOTH_WAYS
def test_a_switch_leaves_one_backend_and_cuts_nothing(world: World, before: Option, after: Option) -> None:
    """No connection made meanwhile ends up with kube-proxy's pod, where the PROXY header is missing.

    kube-proxy's rules are in nftables, which existed before both.
    """
    world.node.nft(KUBE_PROXY)
    assert world.node.answer(LB[4], 443).startswith("pod ")
    clean = world.node.rules()
    apply(Dnat(before), guarded())
    assert standing() == [before]
    removal = "delete table inet nodeagent" if before == "nftables" else "all chains NODEAGENT-* are deleted"
    assert removal in difference_of(Dnat(after), guarded()).text
    with world.answers(world.node) as heard:
        for step in range(6):
            old, new = (before, after) if step % 2 == 0 else (after, before)
            change = apply(Dnat(new), guarded())
            assert f"- everything that the backend {old} left" in str(change)
            assert standing() == [new]
            assert not apply(Dnat(new), guarded())
    assert len(heard) > 20
    assert set(heard) == {f"relay {NODE[4]}"}
    for backend in (NftablesBackend(), IptablesBackend()):
        apply(backend, guarded())
    change = apply(Dnat(after), NO_RULES)
    assert f"- everything that the backend {before} left" in str(change)
    assert standing() == [], "both at once, as an agent leaves them that dies while it changes"
    apply(Dnat(before), guarded())
    apply(Dnat("none"), NO_RULES)
    assert world.node.rules() == clean


@BOTH_WAYS
def test_the_old_redirects_hold_until_the_new_are_there(world: World, before: Option, after: Option) -> None:
    """As in the agent's order: guard, addresses, relay, redirects."""
    apply(Dnat(before), guarded())
    dnat = Dnat(after)
    assert add(dnat, Desired(dnat=replace(guarded(), redirects=(), pods=()))).failure == ""
    assert {*standing()} == {before, after}
    for client, source in ((world.node, NODE[4]), (world.pod, POD[4])):
        assert client.answer(LB[4], 443) == f"relay {source}"
    assert add(dnat, Desired(dnat=guarded())).failure == ""
    assert standing() == [after]
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert not apply(dnat, guarded())


@BOTH_WAYS
def test_a_switch_that_fails_leaves_the_old_rules_active(
    world: World, own_lock: Path, monkeypatch: pytest.MonkeyPatch, before: Option, after: Option
) -> None:
    """Another program holds the lock of xtables: nothing is lost, and the next pass makes the rest.

    It finds both backends' rules if those of iptables could not be removed, as after an agent's death.
    """
    apply(Dnat(before), guarded())
    with monkeypatch.context() as short, locked(own_lock):
        short.setattr("nodeagent.components.dnat.xt_tables._WAIT_SECONDS", 0.1)
        with pytest.raises(ApplyError, match="another program has held"):
            apply(Dnat(after), guarded())
    assert before in standing()
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert world.pod.answer(LB[6], 443) == f"relay {POD[6]}"
    apply(Dnat(after), guarded())
    assert standing() == [after]
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert not apply(Dnat(after), guarded())


def test_auto_without_nft_is_iptables(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only_path(monkeypatch, tmp_path)
    dnat = Dnat("auto")
    apply(dnat, guarded())
    assert IptablesBackend().read().present
    assert world.node.answer(LB[6], 443) == f"relay {NODE[6]}"


@pytest.mark.usefixtures("node")
def test_nft_that_is_too_slow_for_a_moment_is_not_taken_for_a_kernel_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise both backends would be active: the rules in nftables would be forgotten."""
    apply(Dnat("auto"), guarded())
    with monkeypatch.context() as slow:
        fake_nft(slow, tmp_path, "exec /bin/sleep 60")
        backend, _ = choose("auto", NftablesBackend(timeout=0.2))
        with pytest.raises(ApplyError, match="did not end within"):
            backend.read()
    assert choose("auto")[0].name == backend.name == "nftables"
    assert standing() == ["nftables"]


@pytest.mark.usefixtures("node")
def test_a_missing_backend_is_found_once_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After an installation of nft, or the loading of a module, the agent needs no restart."""
    missing = r"There is no nft program .* apt-get install nftables\).* dnat\.backend: none"
    with monkeypatch.context() as without:
        only_path(without, tmp_path)
        dnat = Dnat("nftables")
        for _ in range(2):
            with pytest.raises(ApplyError, match=missing):
                dnat.read()
    assert converge(dnat, Desired(dnat=guarded())) == ""
    assert standing() == ["nftables"]


@pytest.mark.usefixtures("node")
def test_auto_goes_back_to_nftables_once_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And watches there, though the agent opens a watch before it reads; both backends' rules were active."""
    converge(Dnat("auto"), Desired(dnat=guarded()))
    dnat = Dnat("auto")
    with monkeypatch.context() as without:
        only_path(without, tmp_path)
        converge(dnat, Desired(dnat=guarded()))
        watch = dnat.watch()
    assert standing() == ["nftables", "iptables"]
    with pytest.raises(OSError, match="no longer be in iptables"):
        watch.drain()
    watch.close()
    with closing(dnat.watch()) as watching:
        assert isinstance(watching, NftablesWatch)
    assert converge(dnat, Desired(dnat=guarded())) == ""
    assert standing() == ["nftables"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock as another program does."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
