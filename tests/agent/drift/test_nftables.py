import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.agent.drift.dnat import NftablesWatcher
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import difference
from nodeagent.model.desired import DnatRules
from tests.agent.drift.recorder import Recorder, running
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import redirect
from tests.root import needs_root

ROOT = Path(__file__).parents[3]
UNPRIVILEGED = """
import time
from nodeagent.agent.drift.dnat import NftablesWatcher
watcher = NftablesWatcher(print)
watcher.start()
while watcher.state().error == "not started":
    time.sleep(0.01)
print(watcher.state().running, watcher.state().error)
watcher.stop()
"""
FOREIGN = "table inet kube-proxy {\n set s { type ipv4_addr; }\n}\n"


@dataclass
class Watched:
    """A namespace with our table, and its watcher."""

    node: Namespace
    watcher: NftablesWatcher
    said: Recorder

    def keep(self, count: int) -> None:
        """Make the table hold so many entries, as the agent does."""
        with self.node.inside(), self.watcher.quiet():
            backend = NftablesBackend()
            self.watcher.expect(backend.run(difference(backend.read(), desired(count))))

    def finally_drifts(self) -> None:
        """The last thing that a test of silence does: drift, which must be the first that is reported."""
        self.node.nft("flush table inet nodeagent")
        assert "rule deleted" in self.said.next()


def desired(count: int) -> DnatRules:
    entries = (redirect(f"203.0.113.{each}", "169.254.66.5") for each in range(1, count + 1))
    return DnatRules(tuple(entries), ())


@pytest.fixture
def table(as_root: None) -> Iterator[Watched]:
    node = Namespace()
    said = Recorder()
    made = Watched(node, NftablesWatcher(said), said)
    with node.inside(), running(made.watcher):
        made.keep(3)
        yield made
    node.close()


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("delete table inet nodeagent", "table deleted"),
        ("flush ruleset", "table deleted"),
        ("delete element inet nodeagent lb4 { 203.0.113.2 . 443 }", "element deleted"),
        ("flush map inet nodeagent lb4", "element deleted"),
        ("add rule inet nodeagent output tcp dport 1 drop", "rule added"),
        ("insert rule inet nodeagent output tcp dport 1 drop", "rule added"),
        ("flush chain inet nodeagent output", "rule deleted"),
        ("add chain inet nodeagent theirs", "chain added"),
        ("add element inet nodeagent pods4 { 10.0.0.0/8 }", "element added"),
    ],
)
def test_every_change_of_our_table_is_seen_with_who_made_it(table: Watched, script: str, word: str) -> None:
    table.node.nft(script)
    told = table.said.next()
    assert word in told
    assert "by nft, process" in told


def test_it_is_seen_again_after_the_repair(table: Watched) -> None:
    for _ in range(5):
        table.node.nft("flush ruleset")
        assert "table deleted" in table.said.next()
        table.keep(3)


def test_own_transactions_cause_no_pass(table: Watched) -> None:
    for count in (5, 2, 0, 200, 200, 1):
        table.keep(count)
    table.finally_drifts()


def test_a_foreign_transaction_during_our_own_is_not_lost(table: Watched) -> None:
    with table.watcher.quiet():
        table.node.nft("delete element inet nodeagent lb4 { 203.0.113.2 . 443 }")
        table.keep(4)
    assert "element deleted" in table.said.next()


def test_tables_of_others_cause_no_pass(table: Watched) -> None:
    table.node.nft(FOREIGN)
    table.node.nft("table ip nodeagent {\n chain c { }\n}\n")
    table.node.nft('table inet other {\n chain c { tcp dport 1 accept comment "nodeagent"\n }\n}\n')
    table.node.nft("delete table ip nodeagent\ndelete table inet other\n")
    table.finally_drifts()


def test_large_transactions_of_others_cause_no_pass(table: Watched) -> None:
    elements = ", ".join(f"10.{each // 65536}.{each // 256 % 256}.{each % 256}" for each in range(5000))
    table.node.nft(FOREIGN)
    table.keep(1)
    table.node.nft(f"add element inet kube-proxy s {{ {elements} }}")
    table.node.nft("flush set inet kube-proxy s")
    table.finally_drifts()


@needs_root
def test_without_the_right_to_listen_the_state_says_so() -> None:
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", sys.executable, "-c", UNPRIVILEGED],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=20,
    )
    assert done.stdout == "False Operation not permitted\n"
