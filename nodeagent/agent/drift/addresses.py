"""Watches the relay addresses and their device, by the kernel's own notifications (rtnetlink(7))."""

import socket
import struct
from ipaddress import ip_address
from typing import ClassVar

from msgspec import Struct

from nodeagent.agent.drift.netlink_socket import (
    Message,
    Notifications,
    NotificationsLostError,
    attributes,
    messages,
    text,
)
from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.components.addresses.netlink import Ranges
from nodeagent.components.addresses.state import AddressState
from nodeagent.components.component import ComponentName
from nodeagent.model.addresses import IPAddress

_NETLINK_ROUTE = 0
# include/uapi/linux/rtnetlink.h: RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR
_GROUPS = (1, 5, 9)
_NEWLINK, _DELLINK, _NEWADDR, _DELADDR = 16, 17, 20, 21

# include/uapi/linux/if_link.h and if_addr.h
_IFINFOMSG = struct.Struct("=BxHiII")
_IFADDRMSG = struct.Struct("=BBBBI")
_IFLA_IFNAME, _IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 3, 1, 2, 8
_IFF_UP = 1
_IFA_F_DADFAILED = 0x08
# ifi_change of a device that is new (rtmsg_ifinfo() when it is registered).
_ALL_CHANGED = 0xFFFFFFFF
_LOOPBACK = 1  # LOOPBACK_IFINDEX: the same in every network namespace

_TOLD_AT_ONCE = 3


class _Seen(Struct, frozen=True):
    """Something that happened to an address in the ranges, or (address None) to the device."""

    what: str
    address: IPAddress | None = None
    wanted_too: bool = False
    """Whether it is drift even for a desired address (or, for the device, one that is to be removed)."""
    if_wanted: bool = True
    """Whether it is drift for a desired address; otherwise, for one that is not desired."""


class AddressWatcher(Watcher[AddressState, Notifications]):
    """Notices a relay address removed or added elsewhere, and the device deleted, renamed or set down.

    For interfaces and addresses of pods, about 13 notifications each, it reads only a few bytes.

    Args:
        interface: The relay device's name.
        ranges: The relay's IPv4 and IPv6 range; addresses outside are ignored.
        on_drift: See `Watcher`; the component is "addresses".
    """

    component: ClassVar[ComponentName] = "addresses"

    def __init__(self, interface: str, ranges: Ranges, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._interface = interface
        self._ranges = ranges
        self._index = 0
        self._seen: list[_Seen] = []
        self._expected: frozenset[IPAddress] | None = None

    def expect(self, state: AddressState) -> None:
        """See `Watcher`. It is drift if a desired address is removed, or another one of the ranges is added.

        The reverse is nodeagent's own change. An address that another program has added somewhere counts,
        too: when it is removed, its load balancer can be served. Before the first call, every change in the
        ranges is drift.
        """
        found = (one.address for one in state.addresses)
        expected = frozenset(one for one in found if any(one in network for network in self._ranges))
        with self._lock:
            self._expected = expected

    def _open(self) -> Notifications:
        return Notifications(_NETLINK_ROUTE, _GROUPS)

    def _begin(self, _: Notifications) -> None:
        try:
            self._index = socket.if_nametoindex(self._interface)
        except OSError:
            self._index = 0  # not made yet; its first notification shows it

    def _read(self, source: Notifications) -> None:
        try:
            for datagram in source.datagrams():
                for message in messages(datagram):
                    self._take(message)
        except NotificationsLostError:
            self._seen.append(_Seen("notifications were lost: too many came at once", wanted_too=True))

    def _settled(self, source: Notifications) -> str:
        # The kernel reports a change before it answers the request, so all notifications of the block are
        # there.
        try:
            self._read(source)
        except OSError:
            return ""  # the thread meets it, too, and restarts
        return self._judge()

    def _judge(self) -> str:
        seen, self._seen = self._seen, []
        told = list(dict.fromkeys(one.what for one in seen if self._is_drift(one)))
        more = f"; and {len(told) - _TOLD_AT_ONCE} more" if len(told) > _TOLD_AT_ONCE else ""
        return "; ".join(told[:_TOLD_AT_ONCE]) + more

    def _is_drift(self, seen: _Seen) -> bool:
        if seen.wanted_too or self._expected is None:
            return True
        if seen.address is None:
            return bool(self._expected)
        return (seen.address in self._expected) == seen.if_wanted

    def _take(self, message: Message) -> None:
        if message.type in (_NEWADDR, _DELADDR):
            self._take_address(message)
        elif message.type in (_NEWLINK, _DELLINK):
            self._take_link(message)

    def _take_address(self, message: Message) -> None:
        _, _, flags, _, index = _IFADDRMSG.unpack_from(message.payload)
        found = attributes(message.payload, _IFADDRMSG.size)
        # IFA_LOCAL is this end of a point-to-point link; IPv6 has it only for these.
        packed = found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS, b""))
        if len(packed) not in (4, 16):
            return
        address = ip_address(packed)
        if not any(address in network for network in self._ranges):
            return
        flags = int.from_bytes(found[_IFA_FLAGS], "little") if _IFA_FLAGS in found else flags
        where = self._name(index)
        if message.type == _DELADDR:
            self._seen.append(_Seen(f"{address} was removed from {where}", address))
        elif flags & _IFA_F_DADFAILED:
            what = f"{address} on {where} is in use elsewhere (duplicate address detection failed)"
            self._seen.append(_Seen(what, address, wanted_too=True))
        else:
            elsewhere = index not in (self._index, _LOOPBACK)
            what = f"{address} was added to {where}"
            self._seen.append(_Seen(what, address, wanted_too=elsewhere, if_wanted=False))

    def _take_link(self, message: Message) -> None:
        family, _, index, flags, change = _IFINFOMSG.unpack_from(message.payload)
        # A bridge sends DELLINK with its own family when a port leaves it.
        if family != socket.AF_UNSPEC:
            return
        ours = index == self._index
        if not ours and self._interface.encode() + b"\0" not in message.payload:
            return
        name = text(attributes(message.payload, _IFINFOMSG.size).get(_IFLA_IFNAME, b""))
        if message.type == _DELLINK:
            if ours:
                self._index = 0
                self._seen.append(_Seen(f"{self._interface} was deleted"))
        elif ours and name != self._interface:
            self._index = 0
            self._seen.append(_Seen(f"{self._interface} was renamed to {name}"))
        elif name == self._interface:
            self._index = index
            if change & _IFF_UP and not flags & _IFF_UP and change != _ALL_CHANGED:
                self._seen.append(_Seen(f"{self._interface} was set down"))

    def _name(self, index: int) -> str:
        if index == self._index:
            return self._interface
        try:
            return socket.if_indextoname(index)
        except OSError:
            return f"interface {index}, which was removed"
