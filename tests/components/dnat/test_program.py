import os
import stat
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from nodeagent import programs
from nodeagent.components.dnat.component import Dnat, choose
from nodeagent.components.dnat.nftables import (
    NftablesBackend,
    NftError,
    NftMissingError,
    NftPermissionError,
    NftProgram,
)
from nodeagent.components.dnat.state import DnatState, difference
from nodeagent.errors import ApplyError
from nodeagent.model.desired import NO_RULES, DnatRules
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import apply, both_families

NOBODY = 65534


@pytest.mark.usefixtures("node")
def test_the_line_that_fails_is_shown() -> None:
    """With nft's own words; and the lines before it have no effect."""
    script = "add table inet nodeagent\nadd element inet nodeagent lb4 { 1.1.1.1 . 1 : 2.2.2.2 . 2 }\n"
    with pytest.raises(NftError, match="nothing was changed") as caught:
        NftProgram().run(script)
    assert 'line of the transaction: "add element inet nodeagent lb4' in str(caught.value)
    assert NftProgram().list_table() is None


@pytest.mark.usefixtures("node")
def test_an_absent_table_is_no_error() -> None:
    """Even when nft proposes another table."""
    NftProgram().run("add table ip nodeagent\nadd table inet nodeagents")
    assert NftProgram().list_table() is None


def test_without_nft_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And `none` needs none."""
    only_path(monkeypatch, tmp_path)
    with pytest.raises(NftMissingError, match="apt-get install nftables"):
        NftablesBackend().read()
    with pytest.raises(ApplyError, match=r"There is no nft program.*dnat\.backend: none"):
        choose("nftables")


def test_an_nft_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the time given."""
    fake_nft(monkeypatch, tmp_path, "exec /bin/sleep 60")
    with pytest.raises(NftError, match=r"did not end within 0\.05 seconds"):
        NftProgram(timeout=0.05).run("add table inet nodeagent")


@pytest.mark.parametrize(
    "message",
    [
        "/dev/stdin:3:1-2: Error: Could not process rule: Operation not supported",
        "netlink: Error: cache initialization failed: Protocol not supported",
    ],
)
def test_a_kernel_without_inet_nat_is_reported_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str
) -> None:
    """As nft 1.0.6 says it on such a kernel."""
    fake_nft(monkeypatch, tmp_path, f'echo "{message}" >&2; exit 1')
    with pytest.raises(ApplyError, match="nft_chain_nat") as caught:
        choose("nftables")
    assert message in str(caught.value)


def test_the_probe_makes_nothing(node: Namespace) -> None:
    """It is a check only."""
    before = node.rules()
    assert choose("auto").name == "nftables"
    assert node.rules() == before


@pytest.mark.usefixtures("node")
def test_none_removes_what_an_earlier_configuration_left() -> None:
    """Of an earlier configuration; the planner desires none then."""
    apply(NftablesBackend(), both_families())
    assert apply(choose("none"), NO_RULES).action == "delete"
    assert not NftablesBackend().read().present
    assert not apply(choose("none"), NO_RULES)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("case", ["read", "dry run", "run", "choose"])
def test_an_ordinary_user_gets_a_dry_run_and_a_typed_refusal(case: str) -> None:
    """There is a table or none: such a user can't know."""
    assert _as_nobody(_CASES[case]) == ""


def _unreadable() -> str:
    state = NftablesBackend().read()
    return "" if "CAP_NET_ADMIN" in state.unreadable and not state.present else repr(state)


def _dry_run() -> str:
    backend = NftablesBackend()
    transaction = difference(backend.read(), both_families())
    text = backend.script(transaction)
    return "" if "chain output" in text else text


def _refused() -> str:
    backend = NftablesBackend()
    try:
        backend.run(difference(backend.read(), both_families()))
    except NftPermissionError as error:
        return "" if "It needs root" in str(error) else str(error)
    return "it ran"


def _chosen() -> str:
    return "" if (choose("auto").name, Dnat("none").backend) == ("nftables", "none") else "not chosen"


_CASES: dict[str, Callable[[], str]] = {
    "read": _unreadable,
    "dry run": _dry_run,
    "run": _refused,
    "choose": _chosen,
}


def _as_nobody(call: Callable[[], str]) -> str:
    """Run `call` in a child process without privileges and with an ordinary user's PATH."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork"), initializer=_become_nobody) as pool:
        return pool.submit(call).result()


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin"


def only_path(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Let nft be found nowhere else."""
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(programs, "_SEARCH", str(directory))


def fake_nft(monkeypatch: pytest.MonkeyPatch, directory: Path, command: str) -> None:
    """Let nft be a shell's script."""
    only_path(monkeypatch, directory)
    program = directory / "nft"
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_running_nothing_starts_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A node in order costs one listing a pass."""
    only_path(monkeypatch, tmp_path)
    backend = NftablesBackend()
    transaction = difference(DnatState(), DnatRules())
    backend.run(transaction)
