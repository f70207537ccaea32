import os
from ipaddress import IPv4Address
from multiprocessing import get_context
from pathlib import Path

import pytest

from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatState, difference
from nodeagent.model.desired import DnatRules
from tests.components.dnat.test_program import fake_nft
from tests.components.dnat.world import apply, redirect

COUNT = 2000


def many(count: int) -> DnatRules:
    """A redirect for each of `count` load balancers."""
    first = int(IPv4Address("198.18.0.0"))
    return DnatRules(tuple(redirect(str(IPv4Address(first + i)), "169.254.66.5") for i in range(count)))


@pytest.mark.usefixtures("node")
def test_two_thousand_entries_come_change_by_one_and_go(backend: DnatBackend) -> None:
    apply(backend, many(COUNT))
    assert len(backend.read().rules.redirects) == COUNT
    change = apply(backend, many(COUNT - 1))
    assert len(change.removed.redirects) == 1
    apply(backend, DnatRules())
    assert not backend.read().present


def test_nft_gets_the_whole_script_of_an_agent_that_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program in nft's place kills the agent before it reads a byte."""
    backend = NftablesBackend()
    script = tmp_path / "script"
    os.mkfifo(script)
    fake_nft(monkeypatch, tmp_path, f"kill -9 $PPID\nexec /bin/cat > {script}")
    transaction = difference(DnatState(), many(COUNT))
    agent = get_context("fork").Process(target=backend.run, args=(transaction,))
    agent.start()
    assert script.read_text() == backend.script(transaction)
    agent.join()
    assert agent.exitcode == -9
