"""A listing during which addresses change: the kernel marks it as interrupted, and it is repeated."""

import json
from collections.abc import Callable, Iterable, Iterator
from errno import EINTR
from itertools import count
from typing import Any

import pytest
from pyroute2 import IPRoute

from nodeagent.linux.netlink import Netlink, NetlinkRefusedError
from tests.components.dnat.network import Namespace

_MANY = 1000
"""Addresses of which a listing has several parts: the kernel fills at most 32 kB at once."""
_ADDED = (f"10.77.{number >> 8}.{number & 255}/32" for number in count())


class _Interrupted:
    """An IPRoute. During each listing, the next of `happenings` happens, if there is one."""

    def __init__(self, route: Any, happenings: Iterator[Callable[[], None]]) -> None:  # noqa: ANN401 - no types
        self._route = route
        self._happenings = happenings
        self.listings = 0
        self._begun = 0
        route.asyncore.register_callback(self._on_message)

    def addr(self, command: str) -> Iterable[Any]:
        """As IPRoute.addr."""
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
    """A node with many addresses."""
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
    happenings = (lambda address=address: many.ip(f"addr add {address} dev lo") for address in _ADDED)
    with IPRoute() as route:
        interrupted = _Interrupted(route, happenings)
        with pytest.raises(NetlinkRefusedError, match="list the addresses: Interrupted") as caught:
            Netlink(interrupted).addresses()
        assert caught.value.errno == EINTR
        assert interrupted.listings == 10
        assert len(Netlink(route).addresses()) > _MANY
