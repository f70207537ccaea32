"""Watches the relay addresses and their device, by the kernel's own notifications (rtnetlink(7))."""

import socket
from ipaddress import ip_address
from typing import Any, ClassVar

from msgspec import Struct

from nodeagent.agent.drift.watcher import ComparingWatcher, OnDrift
from nodeagent.components.addresses.component import Addresses
from nodeagent.components.addresses.state import AddressState, DeviceStatus, Ranges
from nodeagent.components.component import ComponentName
from nodeagent.model.addresses import IPAddress
from nodeagent.netlink import Notifications, address_notifications

_MOST_DIFFERENCES = 3


class _Addresses(Struct, frozen=True):
    """What is watched of the actual state: the device, and each address in the ranges, with its device."""

    status: DeviceStatus
    held: frozenset[tuple[IPAddress, str]]


class AddressWatcher(ComparingWatcher[AddressState, Notifications, _Addresses]):
    """Notices a relay address removed or added elsewhere, and the device deleted, renamed or set down.

    After a notification about them, the actual state is read and compared. One about another interface or
    address, of which each pod causes about 13, costs its decoding.
    Addresses outside the ranges are ignored.
    """

    component: ClassVar[ComponentName] = "addresses"

    def __init__(self, component: Addresses, interface: str, ranges: Ranges, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._addresses = component
        self._interface = interface
        self._ranges = ranges
        self._index = 0

    def _open(self) -> Notifications:
        return address_notifications()

    def _begin(self, _: Notifications) -> None:
        try:
            self._index = socket.if_nametoindex(self._interface)
        except OSError:
            self._index = 0  # not made yet; its first notification shows it

    def _read(self, source: Notifications) -> None:
        for message in source.messages():
            self._touched = self._is_relevant(message) or self._touched

    def _is_relevant(self, message: Any) -> bool:  # noqa: ANN401 - pyroute2 has no types
        if message["event"] in {"RTM_NEWADDR", "RTM_DELADDR"}:
            text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            return text is not None and self._is_in_range(ip_address(text))
        # A bridge sends DELLINK with its own family when a port leaves it.
        if message["family"] != socket.AF_UNSPEC:
            return False
        if message.get_attr("IFLA_IFNAME") == self._interface:
            self._index = message["index"]
            return True
        return bool(message["index"] == self._index)

    def _read_actual(self) -> _Addresses:
        return self._compared(self._addresses.read())

    def _compared(self, state: AddressState) -> _Addresses:
        # An address that another program has added somewhere counts, too: when it is removed, its load
        # balancer can be served.
        held = ((one.address, one.interface) for one in state.addresses if self._is_in_range(one.address))
        return _Addresses(state.status, frozenset(held))

    def _is_in_range(self, address: IPAddress) -> bool:
        return any(address in network for network in self._ranges)

    def _difference(self, found: _Addresses) -> str:
        if self._expected is None:
            return "the relay addresses or their device may have changed"
        differences = []
        if found.status != self._expected.status:
            differences.append(f"{self._interface} was {self._expected.status} and is {found.status}")
        removed, added = self._expected.held - found.held, found.held - self._expected.held
        differences += sorted(f"{address} was removed from {device}" for address, device in removed)
        differences += sorted(f"{address} was added to {device}" for address, device in added)
        more = len(differences) - _MOST_DIFFERENCES
        return "; ".join(differences[:_MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
