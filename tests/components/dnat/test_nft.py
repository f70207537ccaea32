"""The program nft: how it is run, what it prints, also in other versions, and tables of its largest size."""

import json
import os
import stat
from ipaddress import IPv4Address
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from nodeagent.components.dnat.component import choose
from nodeagent.components.dnat.nft_table import state_of
from nodeagent.components.dnat.nftables import NftablesBackend, NftError
from nodeagent.components.dnat.state import DnatBackend, DnatState, difference, normalised
from nodeagent.errors import ApplyError
from nodeagent.linux import programs
from nodeagent.model.desired import DnatRules
from tests.cases import cases_of
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import apply, plain, redirect

Items = list[dict[str, Any]]
CASES = cases_of(__file__, "cases.yaml")
COUNT = 2000


@pytest.fixture
def listing(node: Namespace) -> Items:
    apply(NftablesBackend(), plain())
    items: Items = json.loads(node.output("nft -j -n list table inet nodeagent"))["nftables"]
    return items


def test_addresses_are_translated_before_kube_proxy_does_and_guarded_before_and_after(listing: Items) -> None:
    """kube-proxy's chains are at -100, and the first that translates a connection wins."""
    hooked = {(one["type"], one["hook"], one["prio"]) for one in _of("chain", listing) if "hook" in one}
    assert hooked == {
        *(("nat", hook, -105) for hook in ("output", "prerouting")),
        ("filter", "prerouting", -300),
        *(("filter", hook, 0) for hook in ("input", "output")),
    }


def _of(kind: str, listing: Items) -> Items:
    return [item[kind] for item in listing if kind in item]


def _state(listing: Items) -> DnatState:
    return state_of(json.dumps({"nftables": listing}).encode())


def test_a_table_is_compared_with_what_the_same_nft_echoed(listing: Items) -> None:
    """Another version prints it differently: it is replaced once. No handle counts."""
    for item in listing:
        for body in item.values():
            body["handle"] = 7
    assert not _state(listing).compared(normalised(plain())).damage
    _of("set", listing)[0]["type"] = {"typeof": "as nft 1.1.3 prints it"}
    assert _state(listing).compared(normalised(plain())).damage


@pytest.mark.parametrize(("kind", "element"), CASES["unknown elements"])
def test_an_unknown_element_is_damage(listing: Items, kind: str, element: object) -> None:
    _of(kind, listing)[0]["elem"] = [element]
    (damage,) = _state(listing).damage
    assert "has an element that can't be nodeagent's" in damage


@pytest.mark.parametrize("text", [b"", b"Error", b"[]", b'{"nftables": [{"chain": {"name": 5}}]}'])
def test_no_listing_at_all_is_an_error(text: bytes) -> None:
    with pytest.raises(ApplyError, match="nothing was changed"):
        state_of(text)


def test_the_line_that_fails_is_shown(node: Namespace) -> None:
    script = "add table inet nodeagent\nadd element inet nodeagent lb4 { 1.1.1.1 . 1 : 2.2.2.2 . 2 }\n"
    with pytest.raises(NftError, match="nothing was changed") as caught:
        NftablesBackend().execute(script)
    assert 'line of the transaction: "add element inet nodeagent lb4' in str(caught.value)
    assert not NftablesBackend().read().present


def test_an_absent_table_is_no_error(node: Namespace) -> None:
    """Even when nft proposes another table."""
    NftablesBackend().execute("add table ip nodeagent\nadd table inet nodeagents")
    assert not NftablesBackend().read().present


@pytest.mark.parametrize("message", CASES["no inet nat"])
def test_a_kernel_without_inet_nat_is_reported_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str
) -> None:
    fake_nft(monkeypatch, tmp_path, f'echo "{message}" >&2; exit 1')
    with pytest.raises(ApplyError, match="nft_chain_nat") as caught:
        choose("nftables")
    assert message in str(caught.value)
    assert ("line of the transaction" in str(caught.value)) == ("stdin" in message)


def only_path(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(programs, "_SEARCH", str(directory))


def fake_nft(monkeypatch: pytest.MonkeyPatch, directory: Path, command: str) -> None:
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


def many(count: int) -> DnatRules:
    first = int(IPv4Address("198.18.0.0"))
    return DnatRules(tuple(redirect(str(IPv4Address(first + i)), "169.254.66.5") for i in range(count)))


def test_two_thousand_entries_come_change_by_one_and_go(node: Namespace, backend: DnatBackend) -> None:
    apply(backend, many(COUNT))
    assert len(backend.read().rules.redirects) == COUNT
    change = apply(backend, many(COUNT - 1))
    assert len(change.removed.redirects) == 1
    apply(backend, DnatRules())
    assert not backend.read().present


def test_nft_gets_the_whole_script_of_a_dead_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program in nft's place kills the agent before it reads a byte."""
    backend = NftablesBackend()
    script = tmp_path / "script"
    os.mkfifo(script)
    fake_nft(monkeypatch, tmp_path, f"kill -9 $PPID\nexec /bin/cat > {script}")
    transaction = difference(DnatState(present=True), many(COUNT))
    agent = get_context("fork").Process(target=backend.run, args=(transaction,))
    agent.start()
    assert script.read_text() == backend.script(transaction)
    agent.join()
    assert agent.exitcode == -9
