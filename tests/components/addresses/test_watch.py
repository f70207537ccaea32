"""What the kernel reports of the relay addresses, at once, and listings during which they change."""

import errno
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from pyroute2 import IPRoute

from nodeagent.components.addresses import Addresses, AddressWatch
from nodeagent.linux.netlink import Netlink, NetlinkRefusedError
from tests.cases import cases_of
from tests.components.addresses.node import FOUR, SIX, apply
from tests.components.dnat.network import Namespace


@pytest.fixture
def watch(node: Namespace, on_device: Addresses) -> Iterator[AddressWatch]:
    """It begins when the addresses are there."""
    apply(on_device, FOUR, SIX)
    with closing(on_device.watch()) as made:
        yield made


@pytest.mark.parametrize(("commands", "told"), cases_of(__file__, "cases.yaml")["seen"])
def test_a_change_of_the_addresses_or_their_device_is_seen(
    node: Namespace, watch: AddressWatch, commands: list[str], told: str
) -> None:
    node.ip(*commands)
    assert told in watch.drain().split("; ")
    assert watch.drain() == ""


def test_a_device_that_comes_later_is_seen(node: Namespace, on_device: Addresses) -> None:
    with closing(on_device.watch()) as watch:
        for command in ("add hairpin0 type ifb", "set hairpin0 name mine", "set mine up"):
            node.ip(f"link {command}")
            assert watch.drain() == "the device hairpin0 was changed"


def test_pods_that_start_and_end_are_not(node: Namespace, watch: AddressWatch) -> None:
    node.ip("link add bridge type bridge", "addr add 169.254.67.1/24 dev lo")
    for number in range(20):
        node.ip(
            f"link add veth{number} type veth peer name peer{number}",
            f"link set veth{number} up",
            f"addr add 10.244.{number}.1/24 dev veth{number}",
            f"link set veth{number} master bridge",
            f"link set veth{number} nomaster",
            f"link del veth{number}",
        )
    assert watch.drain() == ""


def test_lost_notifications_are_an_error(node: Namespace, watch: AddressWatch) -> None:
    source = watch._source  # noqa: SLF001 - at its full size, it takes too long to fill
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    node.ip(*(f"addr add 10.1.1.{number}/32 dev lo" for number in range(1, 100)))
    with pytest.raises(OSError, match="No buffer space") as caught:
        watch.drain()
    assert caught.value.errno == errno.ENOBUFS


_MANY = 1000
"""Addresses of which a listing has several parts: the kernel fills at most 32 kB at once."""


class _Interrupted:
    """An IPRoute. During each listing, the next of `happenings` happens, if there is one."""

    def __init__(self, route: Any, happenings: Iterator[Callable[[], None]]) -> None:  # noqa: ANN401 - no types
        self._route = route
        self._happenings = happenings
        self.listings = 0
        self._begun = 0
        route.asyncore.register_callback(self._on_message)

    def addr(self, command: str) -> Iterable[Any]:
        self.listings += 1
        found: Iterable[Any] = self._route.addr(command)
        return found

    def _on_message(self, _: object) -> None:
        """Called for each message while the kernel has more of them."""
        if self._begun < self.listings:
            self._begun = self.listings
            next(self._happenings, lambda: None)()


@pytest.fixture
def many(node: Namespace) -> Namespace:
    node.ip(*(f"addr add 10.66.{number >> 8}.{number & 255}/32 dev lo" for number in range(_MANY)))
    return node


def test_a_listing_that_a_change_interrupts_is_repeated(many: Namespace) -> None:
    happenings = iter([lambda: many.ip("addr del 10.66.0.1/32 dev lo", "addr add 10.77.0.1/32 dev lo")])
    with IPRoute() as route:
        interrupted = _Interrupted(route, happenings)
        found = [str(one.address) for one in Netlink(interrupted).addresses()]
    assert interrupted.listings == 2
    links = json.loads(many.output("ip -j addr"))
    assert sorted(found) == sorted(one["local"] for link in links for one in link["addr_info"])
    assert "10.77.0.1" in found
    assert "10.66.0.1" not in found


def test_a_listing_that_changes_interrupt_each_time_is_an_error_and_no_half_list(many: Namespace) -> None:
    added = (f"10.77.{number >> 8}.{number & 255}/32" for number in count())
    happenings = (lambda address=address: many.ip(f"addr add {address} dev lo") for address in added)
    with IPRoute() as route:
        interrupted = _Interrupted(route, happenings)
        with pytest.raises(NetlinkRefusedError) as caught:
            Netlink(interrupted).addresses()
        assert caught.value.errno == errno.EINTR
        assert interrupted.listings == 10
        assert len(Netlink(route).addresses()) > _MANY
