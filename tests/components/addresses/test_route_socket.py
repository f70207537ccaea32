"""A listing during which addresses change: the kernel marks it as interrupted, and it is repeated."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EINTR
from itertools import count
from typing import Any

import pytest

from nodeagent.components.addresses.netlink import Netlink, NetlinkRefusedError
from nodeagent.components.addresses.route_socket import RouteSocket
from tests.components.dnat.network import Namespace

_MANY = 1000
"""Addresses of which a listing has several parts: the kernel fills at most 32 kB at once."""
_ADDED = (f"10.77.{number >> 8}.{number & 255}/32" for number in count())


class _Interrupted(socket.socket):
    """A netlink socket. Before each part of a listing, the next of `happenings` happens, if there is one."""

    happenings: Iterator[Callable[[], None]]
    listings: int = 0

    def sendto(self, *arguments: Any) -> int:  # noqa: ANN401 - overloaded in the base class
        self.listings += 1
        return super().sendto(*arguments)

    def recvmsg(self, *arguments: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        next(self.happenings, lambda: None)()
        return super().recvmsg(*arguments)


@contextmanager
def _interrupted(
    monkeypatch: pytest.MonkeyPatch, happenings: Iterator[Callable[[], None]]
) -> Iterator[tuple[Netlink, _Interrupted]]:
    with (
        RouteSocket() as route,
        _Interrupted(socket.AF_NETLINK, socket.SOCK_RAW, 0) as interrupted,
        monkeypatch.context() as patched,
    ):
        interrupted.happenings = happenings
        patched.setattr(route, "_socket", interrupted)
        yield Netlink(route), interrupted


def _fill(node: Namespace) -> None:
    node.ip(*(f"addr add 10.66.{number >> 8}.{number & 255}/32 dev lo" for number in range(_MANY)))


def test_a_listing_that_a_change_interrupts_is_repeated(
    node: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(node)
    happenings = iter([lambda: node.ip("addr del 10.66.0.1/32 dev lo", "addr add 10.77.0.1/32 dev lo")])
    with _interrupted(monkeypatch, happenings) as (netlink, interrupted):
        found = [str(one.address) for one in netlink.addresses()]
        assert interrupted.listings == 2
    links = json.loads(node.output("ip -j addr"))
    assert sorted(found) == sorted(one["local"] for link in links for one in link["addr_info"])
    assert "10.77.0.1" in found
    assert "10.66.0.1" not in found


def test_a_listing_that_changes_interrupt_each_time_is_an_error_and_no_half_list(
    node: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(node)
    happenings = (lambda address=address: node.ip(f"addr add {address} dev lo") for address in _ADDED)
    with _interrupted(monkeypatch, happenings) as (netlink, interrupted):
        with pytest.raises(NetlinkRefusedError, match="list the addresses: Interrupted") as caught:
            netlink.addresses()
        assert caught.value.errno == EINTR
        assert interrupted.listings == 10
        interrupted.happenings = iter(())
        assert len(netlink.addresses()) > _MANY
