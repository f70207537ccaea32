import math
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from unittest.mock import Mock

import pytest

from nodeagent.components.addresses import AddressDiff, Addresses
from nodeagent.components.component import Component, DiffT, StateT
from nodeagent.components.dnat.component import Dnat
from nodeagent.components.node import CachedState
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired
from tests.clock import Clock
from tests.components.addresses.node import FOUR, RANGES, SIX, desired, held
from tests.components.converging import watching
from tests.components.dnat.network import Namespace
from tests.components.dnat.world import guarded
from tests.components.fake import Lines, Part

FOREIGN = "169.254.66.9"


class _Kept:
    """The state of a component in memory, at a time of the test's choosing."""

    def __init__(self) -> None:
        self.part = Part(lambda _: ())
        self.clock = Clock()
        self.state = CachedState[Lines, Lines](self.part, self.clock)
        self.state.start_watching()

    def reads_in_passes(self, count: int) -> int:
        """How often it is read in so many passes in which nothing is noticed."""
        before = self.part.reads
        for _ in range(count):
            assert self.state.notice() == ""
            self.state.diff(Desired())
        return self.part.reads - before


@pytest.fixture
def kept() -> Iterator[_Kept]:
    made = _Kept()
    assert made.state.notice() == "found by a first look"
    made.state.state()
    yield made
    made.state.stop_watching()


def test_a_state_is_read_once_and_holds_until_another_program_changes_it(kept: _Kept) -> None:
    for lines in (("edited",), ()):
        kept.part.revert(lines)
        assert kept.state.notice() == "it was written"
        assert kept.reads_in_passes(3) == 1
        assert kept.state.state().lines == lines
    kept.state.stop_watching()
    assert (kept.state.fileno(), kept.state.due_at()) == (-1, math.inf)
    assert kept.reads_in_passes(3) == 3, "nothing reports a change"


def test_a_state_holds_for_ten_minutes_at_most(kept: _Kept) -> None:
    kept.clock.now = kept.state.due_at() - 0.1
    assert kept.state.notice() == ""
    kept.clock.now += 0.1
    assert kept.state.notice() == "found by a regular look"
    assert kept.reads_in_passes(2) == 1


def test_one_that_can_not_be_read_is_left_for_a_while(kept: _Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept.part, "read", Mock(side_effect=ApplyError("a link")))
    kept.part.revert()
    assert kept.state.notice()
    with pytest.raises(ApplyError, match="a link"):
        kept.state.state()
    assert kept.state.notice() == ""
    assert kept.state.due_at() == kept.clock() + 600


@pytest.mark.parametrize("error", [FileNotFoundError("an odd message"), KeyError("an odd message")])
def test_a_watch_that_is_interrupted_begins_again_and_until_then_each_pass_reads(
    kept: _Kept, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """At once, unless it had begun just before: then after ten seconds, as one that can't begin."""
    broken = Mock(seconds=600.0, fileno=lambda: -1, drain=Mock(side_effect=error))
    opened = Mock(side_effect=[broken, error, broken, kept.part.watch()])
    monkeypatch.setattr(kept.part, "watch", opened)
    kept.state.stop_watching()
    kept.state.start_watching()
    assert kept.state.notice() == "found by a first look"
    for seen in ("the watch was interrupted: ", "found by a regular look"):
        assert kept.state.notice().startswith(seen)
        assert "an odd message" in kept.state.error
        assert (kept.state.fileno(), kept.state.due_at()) == (-1, kept.clock() + 10)
        assert kept.reads_in_passes(3) == 3
        kept.clock.now += 10
    told = kept.state.error
    assert kept.state.notice() == f"it could not be watched ({told})"
    assert kept.state.error == ""
    kept.clock.now += 10
    assert kept.state.notice() == f"the watch was interrupted: {told}"
    assert kept.state.due_at() <= kept.clock()
    assert kept.state.notice() == f"it could not be watched ({told})"
    assert kept.reads_in_passes(3) == 1


@pytest.mark.parametrize(
    ("component", "wanted", "revert"),
    [
        (Addresses("hairpin0", RANGES), desired(FOUR, SIX), f"ip addr flush to {FOUR}/32"),
        (Dnat("nftables"), Desired(dnat=guarded()), "nft flush ruleset"),
    ],
    ids=["addresses", "nftables"],
)
@pytest.mark.usefixtures("node")
def test_own_changes_go_unnoticed(component: Component[StateT, DiffT], wanted: Desired, revert: str) -> None:
    with watching(component) as cached:
        for now_wanted in (wanted, Desired(), wanted):
            for keep in (True, False):
                cached.apply(now_wanted, keep=keep)
                assert cached.notice() == ""
            assert not cached.diff(now_wanted)
        subprocess.run(revert.split(), check=True)
        assert cached.notice()
        assert cached.diff(wanted)


class _Raced(Addresses):
    """Whenever it has changed something, another program adds an address."""

    def apply(self, diff: AddressDiff) -> str:
        failure = super().apply(diff)
        subprocess.run(f"ip addr add {FOREIGN}/32 dev lo label lo:hairpin0".split(), check=True)
        return failure


def test_what_another_program_does_before_the_state_is_read_is_in_it(node: Namespace) -> None:
    with watching(_Raced("hairpin0", RANGES)) as cached:
        assert cached.apply(desired(FOUR), keep=True).failure == ""
        assert cached.notice() == ""
        assert held(cached.state()) == {ip_address(FOUR), ip_address(FOREIGN)}
        assert FOREIGN in str(cached.diff(desired(FOUR)))
