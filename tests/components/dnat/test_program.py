import stat
from pathlib import Path

import pytest

from nodeagent.components.dnat.component import choose
from nodeagent.components.dnat.nftables import NftablesBackend, NftError
from nodeagent.components.dnat.state import DnatState, difference
from nodeagent.errors import ApplyError
from nodeagent.linux import programs
from nodeagent.model.desired import DnatRules


@pytest.mark.usefixtures("node")
def test_the_line_that_fails_is_shown() -> None:
    script = "add table inet nodeagent\nadd element inet nodeagent lb4 { 1.1.1.1 . 1 : 2.2.2.2 . 2 }\n"
    with pytest.raises(NftError, match="nothing was changed") as caught:
        NftablesBackend().execute(script)
    assert 'line of the transaction: "add element inet nodeagent lb4' in str(caught.value)
    assert NftablesBackend().list_table() is None


@pytest.mark.usefixtures("node")
def test_an_absent_table_is_no_error() -> None:
    """Even when nft proposes another table."""
    NftablesBackend().execute("add table ip nodeagent\nadd table inet nodeagents")
    assert NftablesBackend().list_table() is None


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
