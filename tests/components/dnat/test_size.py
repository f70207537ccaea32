import os
import time
from ipaddress import IPv4Address
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from select import select

import pytest

from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatChange, DnatState, difference
from nodeagent.model.desired import DnatRules
from tests.components.dnat.network import Namespace
from tests.components.dnat.test_program import fake_nft
from tests.components.dnat.world import apply, redirect

COUNT = 5000
# As text three times as much as a pipe holds.
MORE_THAN_A_PIPE = 1500


def many(count: int) -> DnatRules:
    """A redirect for each of `count` load balancers."""
    first = int(IPv4Address("198.18.0.0"))
    return DnatRules(tuple(redirect(str(IPv4Address(first + i)), "169.254.66.5") for i in range(count)))


@pytest.mark.usefixtures("node")
def test_five_thousand_entries_come_change_by_one_and_go(backend: DnatBackend) -> None:
    """Far more than a cluster has."""
    apply(backend, many(COUNT))
    assert len(backend.read().rules.redirects) == COUNT
    change = apply(backend, many(COUNT - 1))
    assert len(change.removed.redirects) == 1
    apply(backend, DnatRules())
    assert not backend.read().present


def test_a_kill_at_any_moment_leaves_all_or_nothing(node: Namespace, backend: DnatBackend) -> None:
    """Moments spread over the time that a run takes; the script is far larger than a pipe holds (64 kB)."""
    seen = set()
    transaction = difference(backend.read(), many(MORE_THAN_A_PIPE))
    started = time.monotonic()
    backend.run(transaction)
    seconds = time.monotonic() - started
    apply(backend, DnatRules())
    for step in range(6):
        agent = _started(backend, transaction)
        agent.join(timeout=step * seconds / 4)
        agent.kill()
        agent.join()
        _wait_for_orphans(node)
        count = len(backend.read().rules.redirects)
        assert count in (0, MORE_THAN_A_PIPE)
        seen.add(count)
        apply(backend, DnatRules())
    assert MORE_THAN_A_PIPE in seen


def test_nft_gets_the_whole_script_of_an_agent_that_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program in nft's place kills the agent before it reads a byte."""
    backend = NftablesBackend()
    script = tmp_path / "script"
    os.mkfifo(script)
    fake_nft(monkeypatch, tmp_path, f"kill -9 $PPID\nexec /bin/cat > {script}")
    transaction = difference(DnatState(), many(COUNT))
    agent = _started(backend, transaction)
    assert script.read_text() == backend.script(transaction)
    agent.join()
    assert agent.exitcode == -9


def _started(backend: DnatBackend, transaction: DnatChange) -> ForkProcess:
    agent = get_context("fork").Process(target=backend.run, args=(transaction,))
    agent.start()
    return agent


def _wait_for_orphans(node: Namespace) -> None:
    """Until no nft of the killed agent is left in the namespace."""
    ours = os.fstat(node.descriptor).st_ino
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() != "nft\n" or (process / "ns/net").stat().st_ino != ours:
                continue
            descriptor = os.pidfd_open(int(process.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
        with os.fdopen(descriptor) as ended:
            select([ended], [], [])
