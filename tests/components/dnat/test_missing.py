"""What a node lacks is said once and clearly, and the rest is served."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired, DnatRules
from tests.components.dnat.network import Namespace
from tests.components.dnat.refused_calls import (
    NO_IP6TABLES,
    NO_IPTABLES,
    NO_IPV6,
    NO_NF_TABLES,
    Refusal,
    refuse,
)
from tests.components.dnat.test_switching import locked
from tests.components.dnat.world import LB, NODE, OUTSIDE, RELAY, World, apply, difference_of, guarded, run

Backend = Callable[[], DnatBackend | Dnat]


def on_kernel_without(missing: tuple[Refusal, ...], backend: Backend, desired: DnatRules) -> str:
    """Make a pass in a process for which the kernel lacks that; what it says, or else the backend."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork"), initializer=refuse, initargs=missing) as pool:
        return pool.submit(_pass, backend, desired).result()


def _pass(choose_backend: Backend, desired: DnatRules) -> str:
    try:
        backend = choose_backend()
        change = difference_of(backend, desired)
        if problem := run(backend, change):
            return f"{problem}\nwas to do:\n{change}"
    except ApplyError as error:
        return str(error)
    if isinstance(backend, Dnat):
        return backend.diff(backend.read(), Desired(dnat=desired)).how
    return backend.name


def test_without_ip6tables_ipv4_is_served_and_it_is_said(world: World) -> None:
    for _ in range(2):
        said = on_kernel_without((NO_IP6TABLES,), IptablesBackend, guarded())
        assert "IPv6 is not redirected, the other family is. ip6tables: table mangle" in said
        assert "load ip6_tables and ip6table_mangle on the host (modprobe)" in said
        assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
        assert world.node.answer(LB[6], 443) == f"lb {NODE[6]}"
        assert world.outside.answer(RELAY[4], 443, 0.7) == "nothing"
        assert world.outside.answer(RELAY[6], 443) == f"relay {OUTSIDE[6]}"
    assert "203.0.113.10" not in said, "the second time nothing of IPv4 was left to do"
    assert apply(IptablesBackend(), guarded())
    assert world.node.answer(LB[6], 443) == f"relay {NODE[6]}"


def test_an_ipv6_only_node_needs_no_iptables_for_ipv4(world: World) -> None:
    said = on_kernel_without((NO_IPTABLES,), IptablesBackend, guarded())
    assert "IPv4 is not redirected, the other family is" in said
    assert world.node.answer(LB[6], 443) == f"relay {NODE[6]}"


@pytest.mark.parametrize("missing", [(NO_IP6TABLES,), (NO_IPV6,)], ids=["no ip6tables", "ipv6.disable=1"])
@pytest.mark.parametrize("backend", [IptablesBackend, NftablesBackend])
def test_where_no_ipv6_is_wanted_none_is_missed(
    world: World, missing: tuple[Refusal, ...], backend: Callable[[], DnatBackend]
) -> None:
    four = DnatRules(guarded().redirects[:1], guarded().pods, guarded().guarded[:1], guarded().admitted)
    assert on_kernel_without(missing, backend, four) == backend().name
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert on_kernel_without(missing, partial(Dnat, "none"), DnatRules()).endswith(" transaction")
    assert world.node.answer(LB[4], 443) == f"lb {NODE[4]}"


def test_nftables_serves_both_where_ipv6_is_switched_off(node: Namespace) -> None:
    """`disable_ipv6=1`: its entries do no harm."""
    node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
    for backend in (NftablesBackend(), IptablesBackend()):
        apply(backend, guarded())
        assert len(backend.read().rules.redirects) == 2
        apply(backend, DnatRules())


def test_auto_takes_iptables_where_the_kernel_has_no_nf_tables(world: World) -> None:
    assert on_kernel_without((NO_NF_TABLES,), partial(Dnat, "auto"), guarded()) == "iptables transaction"
    assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"


@pytest.mark.usefixtures("node")
def test_with_neither_auto_names_what_each_lacks() -> None:
    said = on_kernel_without((NO_NF_TABLES, NO_IPTABLES, NO_IP6TABLES), partial(Dnat, "auto"), guarded())
    assert "neither nftables nor legacy iptables works on this node; no DNAT rule was changed" in said
    assert "nftables: This kernel can't do DNAT" in said
    assert "nf_tables, nft_chain_nat, nft_ct and nft_nat" in said
    assert "iptables: the kernel has no legacy table nat of iptables" in said
    assert "modprobe iptable_nat" in said
    assert "modprobe ip6table_nat" in said


def test_without_any_table_the_iptables_backend_says_so_once(node: Namespace) -> None:
    before = node.rules()
    said = on_kernel_without((NO_IPTABLES, NO_IP6TABLES), IptablesBackend, guarded())
    assert "The kernel has no legacy iptables here: load ip_tables and iptable_mangle" in said
    assert "The kernel has no legacy ip6tables here: load ip6_tables and ip6table_mangle" in said
    assert node.rules() == before


def test_a_lock_that_another_program_holds_for_long(
    world: World, own_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The existing rules work, reading works, and the change is made when the lock is free."""
    monkeypatch.setattr("nodeagent.components.dnat.xt_tables._WAIT_SECONDS", 0.1)
    backend = IptablesBackend()
    apply(backend, guarded())
    with locked(own_lock):
        assert not apply(backend, guarded())
        with pytest.raises(ApplyError, match=r"has held .*xtables\.lock for 0\.1 seconds; no iptables rule"):
            apply(backend, DnatRules())
        assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
    assert apply(backend, DnatRules())


@pytest.mark.usefixtures("node")
def test_a_lock_file_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A read-only /run without the file mounted into it."""
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "none" / "xtables.lock"))
    with pytest.raises(ApplyError, match=r"xtables\.lock could not be opened \(No such file or directory\)"):
        apply(IptablesBackend(), guarded())
    assert not IptablesBackend().read().present
