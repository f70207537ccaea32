import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from nodeagent.agent.drift.addresses import AddressWatcher
from nodeagent.components.addresses.component import Addresses
from nodeagent.model.desired import Desired
from tests.agent.drift.recorder import Recorder, running
from tests.components.addresses.node import FOUR, RANGES, SIX
from tests.components.addresses.node import relay as relay_addresses
from tests.components.dnat.network import Namespace

OTHER = "169.254.66.6"


@dataclass
class Watched:
    """A namespace with the relay's addresses on a bridge, in place of a dummy device."""

    node: Namespace
    watcher: AddressWatcher
    component: Addresses
    said: Recorder

    def keep(self, *addresses: str) -> None:
        """Make these the relay's addresses, as the agent does."""
        with self.node.inside(), self.watcher.quiet():
            desired = Desired(addresses=relay_addresses(*addresses))
            grown = self.component.diff(self.component.read(), desired).grow.apply()
            self.watcher.expect(self.component.diff(grown, desired).shrink.apply())

    def finally_drifts(self) -> None:
        """The last thing that a test of silence does: drift, which must be the first that is reported."""
        self.node.ip("addr add 169.254.66.99/32 dev lo")
        # What precedes it may take a busy machine longer than a single notification.
        assert self.said.next(5) == "169.254.66.99 was added to lo"


@pytest.fixture
def relay(as_root: None) -> Iterator[Watched]:
    node = Namespace()
    said = Recorder()
    component = Addresses("hairpin0", RANGES, "bridge")
    made = Watched(node, AddressWatcher(component, "hairpin0", RANGES, said), component, said)
    with node.inside(), running(made.watcher):
        made.keep(FOUR, SIX)
        yield made
    node.close()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("addr del 169.254.66.5/32 dev hairpin0", "169.254.66.5 was removed from hairpin0"),
        ("addr del fd68:6169:7270::5/128 dev hairpin0", "fd68:6169:7270::5 was removed from hairpin0"),
        ("addr flush dev hairpin0", "was removed from hairpin0"),
        ("link del hairpin0", "hairpin0 was up and is absent"),
        ("link set hairpin0 down", "hairpin0 was up and is down"),
        ("link set hairpin0 down\nlink set hairpin0 name mine", "is absent"),
        ("addr add 169.254.66.77/32 dev lo", "169.254.66.77 was added to lo"),
        (
            "link add other0 type veth peer name other1\naddr add 169.254.66.5/32 dev other0",
            "169.254.66.5 was added to other0",
        ),
    ],
)
def test_every_change_of_the_relay_addresses_is_seen(relay: Watched, command: str, told: str) -> None:
    relay.node.ip(command)
    relay.said.until(told)


def test_one_that_is_a_duplicate_is_seen(relay: Watched) -> None:
    node = relay.node
    node.sysctl("net/ipv6/conf/default/accept_dad", "1")
    node.ip(
        "link add left type veth peer name right",
        "link set left up",
        "link set right up",
        "addr add fd68:6169:7270::9/128 dev left nodad",
    )
    relay.said.until("was added to left")
    node.ip("addr add fd68:6169:7270::9/128 dev right")
    relay.said.until("was added to right")


def test_own_changes_cause_no_pass(relay: Watched) -> None:
    relay.keep(FOUR, OTHER, SIX)
    relay.keep(OTHER)
    relay.keep()
    relay.keep(FOUR, SIX)
    relay.finally_drifts()


def test_a_foreign_removal_during_our_own_change_is_not_lost(relay: Watched) -> None:
    with relay.watcher.quiet():
        relay.keep(FOUR, OTHER, SIX)
        relay.node.ip("addr del 169.254.66.5/32 dev hairpin0")
    relay.said.until("169.254.66.5 was removed")


def test_pods_that_start_and_end_cause_no_pass(relay: Watched) -> None:
    pods = [
        command
        for number in range(50)
        for command in (
            f"link add veth{number} type veth peer name peer{number}",
            f"link set veth{number} up",
            f"link set peer{number} up",
            f"addr add 10.244.{number}.1/24 dev veth{number}",
            f"link set veth{number} master hairpin0",
            f"link set veth{number} nomaster",
            f"link del veth{number}",
        )
    ]
    relay.node.ip(*pods)
    relay.finally_drifts()


def test_lost_notifications_are_reported_and_the_watch_continues(relay: Watched) -> None:
    notifications = relay.watcher._source  # noqa: SLF001 - at its full size it is read faster than filled
    assert notifications is not None
    notifications._source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # noqa: SLF001
    deadline = time.monotonic() + 10
    told = "nothing"
    number = 0
    while "No buffer space" not in told:
        assert time.monotonic() < deadline
        batch = "\n".join(f"addr add 10.1.{number % 250}.{each}/32 dev lo" for each in range(1, 250))
        with relay.node.inside():
            subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
        number += 1
        told = relay.said.next(0.01)
    relay.said.until("restarted", 5)
    relay.node.ip("link del hairpin0")
    relay.said.until("hairpin0 was up and is absent", 5)
