"""How long a component's state holds: what is read once, and what makes it be read again."""

import math
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.components.addresses import AddressDiff, Addresses
from nodeagent.components.component import Component, DiffT, StateT
from nodeagent.components.dnat.component import Dnat
from nodeagent.components.hosts.component import HostsState
from nodeagent.components.node import CachedState
from nodeagent.errors import ApplyError
from nodeagent.linux.inotify import FileEvents
from nodeagent.model.desired import Desired
from tests.components.addresses.node import FOUR, RANGES, SIX, desired, held
from tests.components.converging import first_said, watching
from tests.components.dnat.world import guarded
from tests.components.hosts.samples import USER, KeptHosts, hosts_file

FOREIGN = "169.254.66.9"


class _Watched(KeptHosts):
    """A hosts file whose state is kept, at a time of the test's choosing; counts how often it is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.now = 1_000_000.0
        self.reads = 0
        self.cached = CachedState(self, lambda: self.now)
        self.cached.start_watching()

    def read(self) -> HostsState:
        self.reads += 1
        return super().read()

    def reads_in_passes(self, count: int) -> int:
        """How often it is read in so many passes in which nothing is noticed."""
        before = self.reads
        for _ in range(count):
            assert self.cached.notice() == ""
            self.cached.diff(Desired())
        return self.reads - before

    def next_seen(self) -> str:
        """What is noticed next; the reader of the kernel's events is another thread."""
        return first_said(self.cached.notice)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A hosts file."""
    return hosts_file(tmp_path)


@pytest.fixture
def hosts(path: Path) -> Iterator[_Watched]:
    """It is not looked at yet."""
    made = _Watched(path)
    yield made
    made.cached.stop_watching()


def _replace(path: Path, content: bytes) -> None:
    """Put another file in its place, which is one event."""
    new = path.parent.with_name("new")
    new.write_bytes(content)
    new.rename(path)


def test_a_state_is_read_once_and_holds_until_another_program_changes_it(path: Path, hosts: _Watched) -> None:
    assert hosts.cached.notice() == "found by a first look"
    for content in (USER + b"10.1.1.1 edited\n", USER):
        _replace(path, content)
        assert hosts.next_seen() == f"{path} was changed by another program"
        assert hosts.reads_in_passes(3) == 1
        assert hosts.cached.state().content == content
    hosts.cached.stop_watching()
    assert (hosts.cached.fileno(), hosts.cached.due_at()) == (-1, math.inf)
    assert hosts.reads_in_passes(3) == 3, "nothing reports a change"


def test_a_state_holds_for_ten_minutes_at_most(hosts: _Watched) -> None:
    hosts.cached.notice()
    hosts.cached.state()
    hosts.now = hosts.cached.due_at() - 0.1
    assert hosts.cached.notice() == ""
    hosts.now += 0.1
    assert hosts.cached.notice() == "found by a regular look"
    assert hosts.reads_in_passes(2) == 1


def test_one_that_can_not_be_read_is_not_looked_at_all_the_time(path: Path, hosts: _Watched) -> None:
    hosts.cached.notice()
    link = path.parent.with_name("link")
    link.symlink_to("other")
    link.rename(path)
    hosts.next_seen()
    with pytest.raises(ApplyError, match="symbolic link"):
        hosts.cached.state()
    assert hosts.cached.notice() == ""
    assert hosts.cached.due_at() == hosts.now + 600


def test_what_can_not_be_watched_is_read_in_each_pass_and_every_ten_seconds(
    path: Path, hosts: _Watched
) -> None:
    away = path.parent.rename(path.parent.with_name("away"))
    for _ in range(2):
        assert hosts.cached.notice() == "found by a regular look"
        assert "No such file or directory" in hosts.cached.error
        assert (hosts.cached.fileno(), hosts.cached.due_at()) == (-1, hosts.now + 10)
        assert hosts.reads_in_passes(3) == 3
        hosts.now += 10
    away.rename(path.parent)
    assert hosts.cached.notice().startswith("it could not be watched (")
    assert hosts.cached.error == ""
    assert hosts.reads_in_passes(3) == 1
    assert hosts.cached.state().content == USER


def test_a_watch_that_is_interrupted_begins_again(path: Path, hosts: _Watched) -> None:
    """At once, unless it had begun just before."""
    hosts.cached.notice()
    hosts.cached.state()
    hosts.now += 10
    path.parent.rename(path.parent.with_name("away"))
    assert hosts.next_seen().startswith("the watch was interrupted: ")
    assert (error := hosts.cached.error).endswith("No such file or directory")
    hosts_file(path.parent.parent, b"new\n")
    assert hosts.cached.due_at() <= hosts.now
    assert hosts.cached.notice() == f"it could not be watched ({error})"
    assert hosts.cached.error == ""
    assert hosts.cached.state().content == b"new\n"
    path.unlink()
    assert hosts.next_seen()


def test_a_watch_that_fails_for_any_reason_costs_no_more_than_readings(
    hosts: _Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that can't be decoded, over and over: it ends neither the agent nor the readings."""

    def drain(_: object) -> str:
        raise KeyError("an odd message")

    monkeypatch.setattr(FileEvents, "drain", drain)
    assert hosts.cached.notice() == "found by a first look"
    assert hosts.cached.notice() == "the watch was interrupted: KeyError: 'an odd message'"
    assert hosts.cached.notice() == ""
    assert hosts.cached.due_at() == hosts.now + 10
    assert hosts.cached.error == "KeyError: 'an odd message'"
    assert hosts.reads_in_passes(3) == 3


@pytest.mark.parametrize(
    ("component", "wanted", "revert"),
    [
        (Addresses("hairpin0", RANGES), desired(FOUR, SIX), f"ip addr flush to {FOUR}/32"),
        (Dnat("nftables"), Desired(dnat=guarded()), "nft flush ruleset"),
    ],
    ids=["addresses", "nftables"],
)
@pytest.mark.usefixtures("node")
def test_own_changes_are_not_noticed(
    component: Component[StateT, DiffT], wanted: Desired, revert: str
) -> None:
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


@pytest.mark.usefixtures("node")
def test_what_another_program_does_before_the_state_is_read_is_in_it() -> None:
    with watching(_Raced("hairpin0", RANGES)) as cached:
        assert cached.apply(desired(FOUR), keep=True).failure == ""
        assert cached.notice() == ""
        assert held(cached.state()) == {ip_address(FOUR), ip_address(FOREIGN)}
        assert FOREIGN in str(cached.diff(desired(FOUR)))
