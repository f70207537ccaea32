"""What a node lacks is said once and clearly, and the rest is served."""

import ctypes
import errno
import platform
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from nodeagent.components.dnat.component import Dnat
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired, DnatRules
from tests.components.dnat.network import Namespace
from tests.components.dnat.test_switching import locked
from tests.components.dnat.world import LB, NODE, OUTSIDE, RELAY, World, apply, difference_of, guarded, run

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBERS: Final = {
    "x86_64": {"socket": 41, "getsockopt": 55},
    "aarch64": {"socket": 198, "getsockopt": 209},
}


@dataclass(frozen=True)
class Refusal:
    """A system call whose arguments (by place) are these fails with an error number."""

    call: str
    arguments: dict[int, int]
    error: int


# Level and option (IPT_SO_GET_INFO) of libiptc's first question, and what kernels answer without the module.
NO_IPTABLES = Refusal("getsockopt", {1: 0, 2: 64}, errno.ENOPROTOOPT)
NO_IP6TABLES = Refusal("getsockopt", {1: 41, 2: 64}, errno.ENOENT)
# AF_NETLINK, NETLINK_NETFILTER: without nfnetlink and nf_tables.
NO_NF_TABLES = Refusal("socket", {0: 16, 2: 12}, errno.EPROTONOSUPPORT)
# AF_INET6, on a kernel that was booted with ipv6.disable=1.
NO_IPV6 = Refusal("socket", {0: 10}, errno.EAFNOSUPPORT)


def refuse(*refusals: Refusal) -> None:
    """Let these calls fail as on a kernel without some modules, in this process and its children for life."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = b"".join(struct.pack("=HBBI", *step) for step in _filter(refusals))
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    for option, value, pointer in ((_PR_SET_NO_NEW_PRIVS, 1, None), (_PR_SET_SECCOMP, _MODE_FILTER, head)):
        if libc.prctl(option, value, pointer, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def _filter(refusals: Sequence[Refusal]) -> list[tuple[int, int, int, int]]:
    """Steps: operation, jump if so, jump if not, value; the call is at 0 of the data, arguments from 16."""
    numbers = _NUMBERS[platform.machine()]
    steps: list[tuple[int, int, int, int]] = []
    for refusal in refusals:
        conditions = [(0, numbers[refusal.call])]
        conditions += [(16 + 8 * place, value) for place, value in refusal.arguments.items()]
        for number, (offset, value) in enumerate(conditions):
            left = 2 * (len(conditions) - number - 1) + 1
            steps += [(_LOAD, 0, 0, offset), (_IF_EQUAL, 0, left, value)]
        steps.append((_RETURN, 0, 0, _ERRNO | refusal.error))
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


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
        assert "IPv6 is not redirected" in said
        assert "load ip6_tables and ip6table_mangle" in said
        assert world.node.answer(LB[4], 443) == f"relay {NODE[4]}"
        assert world.node.answer(LB[6], 443) == f"lb {NODE[6]}"
        assert world.outside.answer(RELAY[4], 443, 0.7) == "nothing"
        assert world.outside.answer(RELAY[6], 443) == f"relay {OUTSIDE[6]}"
    assert "203.0.113.10" not in said, "the second time nothing of IPv4 was left to do"
    assert apply(IptablesBackend(), guarded())
    assert world.node.answer(LB[6], 443) == f"relay {NODE[6]}"


def test_an_ipv6_only_node_needs_no_iptables_for_ipv4(world: World) -> None:
    said = on_kernel_without((NO_IPTABLES,), IptablesBackend, guarded())
    assert "IPv4 is not redirected" in said
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


def test_with_neither_auto_names_what_each_lacks(node: Namespace) -> None:
    said = on_kernel_without((NO_NF_TABLES, NO_IPTABLES, NO_IP6TABLES), partial(Dnat, "auto"), guarded())
    for words in (
        "nf_tables, nft_chain_nat, nft_ct and nft_nat",
        "modprobe iptable_nat",
        "modprobe ip6table_nat",
    ):
        assert words in said


def test_without_any_table_the_iptables_backend_says_so_once(node: Namespace) -> None:
    before = node.rules()
    said = on_kernel_without((NO_IPTABLES, NO_IP6TABLES), IptablesBackend, guarded())
    for modules in ("ip_tables and iptable_mangle", "ip6_tables and ip6table_mangle"):
        assert said.count(modules) == 1
    assert node.rules() == before


def test_a_lock_that_is_held_for_long(world: World, own_lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
