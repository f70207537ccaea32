"""The watchers of both DNAT backends: what others change is seen, what the agent changes is not reported."""

import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.agent.drift import dnat
from nodeagent.agent.drift.dnat import NftablesWatcher, XtablesWatcher
from nodeagent.agent.inotify import CLOSE_WRITE, Event, Inotify
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, difference
from nodeagent.model.desired import DnatRules
from tests.agent.drift.recorder import Recorder, running
from tests.components.dnat.network import Namespace, become_nobody
from tests.components.dnat.world import redirect
from tests.isolation import isolated
from tests.testbed.waiting import wait_until

NFT, LEGACY = "nftables", "iptables"
PUSHED_DOWN = "*nat\n:KUBE-SERVICES - [0:0]\n-I OUTPUT -j KUBE-SERVICES\nCOMMIT\n"
BEFORE_OURS = "another rule is before the jump to nodeagent's chain in OUTPUT"
FOREIGN = {
    NFT: "table inet kube-proxy {\n set s { type ipv4_addr; }\n}\n",
    LEGACY: "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -p tcp -j RETURN\nCOMMIT\n",
}
DRIFT = {NFT: ("flush ruleset", "table deleted"), LEGACY: (PUSHED_DOWN, BEFORE_OURS)}


@dataclass
class Watched:
    """A namespace with our rules, and their watcher."""

    name: str
    node: Namespace
    backend: DnatBackend
    watcher: NftablesWatcher | XtablesWatcher
    said: Recorder

    def keep(self, count: int) -> None:
        """Make the rules hold so many entries, as the agent does."""
        entries = (redirect(f"203.0.113.{each}", "169.254.66.5") for each in range(1, count + 1))
        with self.node.inside(), self.watcher.quiet():
            change = difference(self.backend.read(), DnatRules(tuple(entries), ()))
            self.watcher.expect(self.backend.run(change))

    def change(self, commands: str) -> None:
        """Let another program make these changes."""
        (self.node.nft if self.name == NFT else self.node.legacy)(commands)

    def drift(self) -> str:
        """Let another program change the rules; returns what is to be seen of it."""
        commands, word = DRIFT[self.name]
        self.change(commands)
        return word

    def finally_drifts(self) -> None:
        """The last thing that a test of silence does: drift, which must be the first that is reported."""
        self.change(
            "flush table inet nodeagent" if self.name == NFT else "*nat\n-F NODEAGENT-OUTPUT\nCOMMIT\n"
        )
        word = "rule deleted" if self.name == NFT else "rules of chain NODEAGENT-OUTPUT"
        assert word in self.said.next()


@pytest.fixture(autouse=True)
def lock_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lock file of the test's own; it is not there yet, as after a boot."""
    path = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(path))
    return path


@pytest.fixture(params=[NFT, LEGACY])
def rules(as_root: None, request: pytest.FixtureRequest) -> Iterator[Watched]:
    node, said = Namespace(), Recorder()
    if request.param == NFT:
        made = Watched(NFT, node, NftablesBackend(), NftablesWatcher(said), said)
    else:
        made = Watched(LEGACY, node, IptablesBackend(), XtablesWatcher(said), said)
    with node.inside(), running(made.watcher):
        made.keep(3)
        yield made
    node.close()


legacy = pytest.mark.parametrize("rules", [LEGACY], indirect=True)
nftables = pytest.mark.parametrize("rules", [NFT], indirect=True)


@pytest.mark.parametrize(
    ("rules", "commands", "word"),
    [
        (NFT, "delete table inet nodeagent", "table deleted"),
        (NFT, "delete element inet nodeagent lb4 { 203.0.113.2 . 443 }", "element deleted"),
        (NFT, "flush map inet nodeagent lb4", "element deleted"),
        (NFT, "add rule inet nodeagent output tcp dport 1 drop", "rule added"),
        (NFT, "insert rule inet nodeagent output tcp dport 1 drop", "rule added"),
        (NFT, "flush chain inet nodeagent output", "rule deleted"),
        (NFT, "add chain inet nodeagent theirs", "chain added"),
        (NFT, "add element inet nodeagent pods4 { 10.0.0.0/8 }", "element added"),
        (LEGACY, "*nat\n-F\n-X\nCOMMIT\n", "deleted"),
        (LEGACY, "*nat\n-F NODEAGENT-LB\nCOMMIT\n", "NODEAGENT"),
        (LEGACY, "*nat\n-D OUTPUT -j NODEAGENT-OUTPUT\nCOMMIT\n", "missing"),
        (LEGACY, "*nat\n-A NODEAGENT-LB -p tcp -j RETURN\nCOMMIT\n", "altered"),
    ],
    indirect=["rules"],
)
def test_every_change_of_our_rules_is_seen(rules: Watched, commands: str, word: str) -> None:
    """And of nftables' who made it."""
    rules.change(commands)
    told = rules.said.next()
    assert word in told
    assert rules.name == LEGACY or "by nft, process" in told


def test_it_is_seen_again_after_the_repair(rules: Watched) -> None:
    for _ in range(5):
        assert rules.drift() in rules.said.next()
        rules.keep(3)


def test_own_changes_cause_no_pass(rules: Watched) -> None:
    """Though those of iptables take the lock as others do."""
    for count in (5, 2, 0, 200, 200, 1):
        rules.keep(count)
    rules.finally_drifts()


def test_a_foreign_change_during_our_own_is_not_lost(rules: Watched) -> None:
    with rules.watcher.quiet():
        rules.keep(4)
        word = rules.drift()
    assert word in rules.said.next()


def test_rules_of_others_cause_no_pass(rules: Watched) -> None:
    rules.change(FOREIGN[rules.name])
    if rules.name == LEGACY:
        rules.node.legacy(FOREIGN[LEGACY], family=6)
    else:
        rules.change("table ip nodeagent {\n chain c { }\n}\n")
        rules.change('table inet other {\n chain c { tcp dport 1 accept comment "nodeagent"\n }\n}\n')
        rules.change("delete table ip nodeagent\ndelete table inet other\n")
    rules.finally_drifts()


@nftables
def test_large_transactions_of_others_cause_no_pass(rules: Watched) -> None:
    elements = ", ".join(f"10.{each // 65536}.{each // 256 % 256}.{each % 256}" for each in range(5000))
    rules.change(FOREIGN[NFT])
    rules.keep(1)
    rules.change(f"add element inet kube-proxy s {{ {elements} }}")
    rules.change("flush set inet kube-proxy s")
    rules.finally_drifts()


@isolated
def test_without_the_right_to_listen_the_state_says_so() -> None:
    with running(NftablesWatcher(Recorder())):
        become_nobody()  # who may not be able to read the modules that the first one imports
    watcher = NftablesWatcher(Recorder())
    watcher.start()
    wait_until(lambda: watcher.state().error == "Operation not permitted", "the error", seconds=20)
    assert not watcher.state().running
    watcher.stop()


@legacy
def test_a_lock_file_that_is_replaced_is_watched_on(rules: Watched, lock_file: Path) -> None:
    rules.change(FOREIGN[LEGACY])
    lock_file.unlink()
    rules.change(FOREIGN[LEGACY])
    rules.finally_drifts()
    rules.keep(3)
    other = lock_file.with_suffix(".new")
    other.touch()
    other.rename(lock_file)
    assert rules.drift() in rules.said.next()


@legacy
def test_a_program_that_takes_no_lock_is_found_by_looking(
    rules: Watched, lock_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own lock file hides it from others."""
    monkeypatch.setattr(dnat, "_CHECK_SECONDS", 0.3)
    rules.change(FOREIGN[LEGACY])  # the watcher wakes, and learns of the shorter time
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock_file.with_suffix(".another")))
    assert rules.drift() in rules.said.next(3.0)


def test_a_file_that_is_watched_twice_reports_each_event_once(tmp_path: Path) -> None:
    """A lock file is watched again when its directory reports it, and it may be the one that was watched."""
    file = tmp_path / "lock"
    file.touch()
    inotify = Inotify()
    try:
        watch = inotify.watch(file, CLOSE_WRITE)
        assert inotify.watch(file, CLOSE_WRITE) == watch
        file.write_text("", encoding="ascii")
        assert select.select([inotify], [], [], 10) == ([inotify], [], [])
        assert list(inotify.fetch()) == [Event(watch, CLOSE_WRITE, "")]
    finally:
        inotify.close()
