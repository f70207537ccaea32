from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.agent.drift import dnat
from nodeagent.agent.drift.dnat import XtablesWatcher
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.state import difference
from nodeagent.model.desired import DnatRules
from tests.agent.drift.recorder import Recorder, running
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import redirect

PUSHED_DOWN = "*nat\n:KUBE-SERVICES - [0:0]\n-I OUTPUT -j KUBE-SERVICES\nCOMMIT\n"
FOREIGN = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -p tcp -j RETURN\nCOMMIT\n"


@dataclass
class Watched:
    """A namespace with our chains, and their watcher."""

    node: Namespace
    watcher: XtablesWatcher
    said: Recorder

    def keep(self, count: int) -> None:
        """Make the chains hold so many entries, as the agent does."""
        with self.node.inside(), self.watcher.quiet():
            backend = IptablesBackend()
            self.watcher.expect(backend.run(difference(backend.read(), desired(count))))

    def finally_drifts(self) -> None:
        """The last thing that a test of silence does: drift, which must be the first that is reported."""
        self.node.legacy("*nat\n-F NODEAGENT-OUTPUT\nCOMMIT\n")
        assert "rules of chain NODEAGENT-OUTPUT" in self.said.next()


def desired(count: int) -> DnatRules:
    entries = (redirect(f"203.0.113.{each}", "169.254.66.5") for each in range(1, count + 1))
    return DnatRules(tuple(entries), ())


@pytest.fixture(autouse=True)
def lock_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lock file of the test's own; it is not there yet, as after a boot."""
    path = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(path))
    return path


@pytest.fixture
def chains(as_root: None) -> Iterator[Watched]:
    node = Namespace()
    said = Recorder()
    made = Watched(node, XtablesWatcher(said), said)
    with node.inside(), running(made.watcher):
        made.keep(3)
        yield made
    node.close()


@pytest.mark.parametrize(
    ("commands", "word"),
    [
        (PUSHED_DOWN, "another rule is before the jump to nodeagent's chain in OUTPUT"),
        ("*nat\n-F\n-X\nCOMMIT\n", "deleted"),
        ("*nat\n-F NODEAGENT-LB\nCOMMIT\n", "NODEAGENT"),
        ("*nat\n-D OUTPUT -j NODEAGENT-OUTPUT\nCOMMIT\n", "missing"),
        ("*nat\n-A NODEAGENT-LB -p tcp -j RETURN\nCOMMIT\n", "altered"),
    ],
)
def test_every_change_of_our_chains_is_seen(chains: Watched, commands: str, word: str) -> None:
    chains.node.legacy(commands)
    assert word in chains.said.next()


def test_it_is_seen_again_after_the_repair(chains: Watched) -> None:
    for _ in range(5):
        chains.node.legacy(PUSHED_DOWN)
        assert "another rule is before the jump" in chains.said.next()
        chains.keep(3)


def test_own_changes_cause_no_pass(chains: Watched) -> None:
    """Though they take the lock as others do."""
    for count in (5, 2, 0, 200, 200, 1):
        chains.keep(count)
    chains.finally_drifts()


def test_a_foreign_change_during_our_own_is_not_lost(chains: Watched) -> None:
    with chains.watcher.quiet():
        chains.keep(4)
        chains.node.legacy(PUSHED_DOWN)
    assert "another rule is before the jump" in chains.said.next()


def test_rules_of_others_cause_no_pass(chains: Watched) -> None:
    for _ in range(5):
        chains.node.legacy(FOREIGN)
        chains.node.legacy(FOREIGN, family=6)
    chains.finally_drifts()


def test_a_lock_file_that_is_replaced_is_watched_on(chains: Watched, lock_file: Path) -> None:
    chains.node.legacy(FOREIGN)
    lock_file.unlink()
    chains.node.legacy(FOREIGN)
    chains.finally_drifts()
    chains.keep(3)
    other = lock_file.with_suffix(".new")
    other.touch()
    other.rename(lock_file)
    chains.node.legacy(PUSHED_DOWN)
    assert "another rule is before the jump" in chains.said.next()


def test_a_program_that_takes_no_lock_is_found_by_looking(
    chains: Watched, lock_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own lock file hides it from others."""
    monkeypatch.setattr(dnat, "_LOOK_SECONDS", 0.3)
    chains.node.legacy(FOREIGN)  # the watcher wakes, and learns of the shorter time
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock_file.with_suffix(".another")))
    chains.node.legacy(PUSHED_DOWN)
    assert "another rule is before the jump" in chains.said.next(3.0)
