"""The relay addresses as a component of the node. Effects by netlink; state.py decides."""

import socket
from errno import EACCES, EAFNOSUPPORT, EEXIST, EOPNOTSUPP, EPERM
from ipaddress import ip_address
from typing import Any

from nodeagent.components.addresses.state import (
    ALIAS,
    NOT_SERVED,
    AddressDiff,
    AddressState,
    DeviceStatus,
    Ranges,
    attributes,
    difference,
    failures_text,
    label_on_lo,
    owned,
)
from nodeagent.components.component import Component
from nodeagent.linux.netlink import (
    ADDRESS_GROUPS,
    Link,
    Netlink,
    NetlinkRefusedError,
    Notifications,
    address_socket,
    opened,
)
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired


class AddressWatch(Notifications):
    """Implements `component.Watch`: addresses in the ranges, and the device.

    A notification about another interface or address, of which each pod causes about 13, costs its decoding.
    """

    def __init__(self, interface: str, ranges: Ranges) -> None:
        super().__init__(address_socket(), ADDRESS_GROUPS)
        self._interface = interface
        self._ranges = ranges
        try:
            self._index = socket.if_nametoindex(interface)
        except OSError:
            self._index = 0  # not made yet; its first notification shows it

    def drain(self) -> str:
        """See `component.Watch`."""
        found = dict.fromkeys(filter(None, map(self._concerned, self.messages())))
        return "; ".join(found)

    def _concerned(self, message: Any) -> str:  # noqa: ANN401 - pyroute2 has no types
        event = message["event"]
        if event in {"RTM_NEWADDR", "RTM_DELADDR"}:
            text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if text is None or not any(ip_address(text) in network for network in self._ranges):
                return ""
            # Another program's address in the ranges counts, too: when it is removed, its load balancer can
            # be served.
            return f"{text} was {'added' if event == 'RTM_NEWADDR' else 'removed'}"
        # A bridge sends DELLINK with its own family when a port leaves it.
        if message["family"] != socket.AF_UNSPEC:
            return ""
        if message.get_attr("IFLA_IFNAME") == self._interface:
            self._index = message["index"]
        elif message["index"] != self._index:
            return ""
        return f"the device {self._interface} was changed"


class Addresses(Component[AddressState, AddressDiff]):
    """Implements `component.Component`: relay addresses on a device of their own, or on `lo`.

    They are on `lo` if the kernel can't make such a device. One address's failure does not affect the others.

    Args:
        interface: The device's name.
        ranges: The IPv4 and the IPv6 range of relay addresses.
        kind: The kind of device to make and to accept, by the kernel's name.
    """

    def __init__(self, interface: str, ranges: Ranges, kind: str = "dummy") -> None:
        self._interface = interface
        self._ranges = ranges
        self._kind = kind

    def read(self) -> AddressState:
        """Return all addresses of the node. Needs no privilege.

        Raises:
            ApplyError: netlink does not answer.
        """
        with opened() as netlink:
            return self._read(netlink)

    def diff(self, actual: AddressState, desired: Desired, *, keep: bool = False) -> AddressDiff:
        """Return what leads to the desired addresses; see `component.Component`. Pure."""
        return difference(actual, desired.addresses, keep=keep)

    def apply(self, diff: AddressDiff) -> str:
        """Make the device if necessary and add the addresses; then remove addresses, or the device.

        See `component.Component`. Raises ApplyError if netlink does not answer.
        """
        with opened() as netlink:
            failed = failures_text(self._add(netlink, diff), NOT_SERVED)
            return "\n".join(filter(None, (failed, failures_text(_remove(netlink, diff)))))

    def watch(self) -> AddressWatch:
        """Return notifications about the relay addresses and their device. Raises OSError."""
        return AddressWatch(self._interface, self._ranges)

    def ready(self, actual: AddressState, desired: Desired) -> frozenset[Endpoint]:
        """Return those whose address the node has; see `component.Component`.

        A listening socket outlives the address to which it is bound: then nothing reaches it.
        """
        held = {one.address for one in actual.ours}
        return frozenset(each.bind for each in desired.listeners if each.bind.address in held)

    def _add(self, netlink: Netlink, diff: AddressDiff) -> dict[IPAddress, str]:
        """Return the addresses that could not be added, and why."""
        failures: dict[IPAddress, str] = {}
        try:
            home = self._ready(netlink, diff)
        except NetlinkRefusedError as error:
            return {one.address: f"{error}{_hint(error, one.address, diff.home)}" for one in diff.add}
        label = label_on_lo(self._interface) if home == "lo" else home
        for one in diff.add:
            try:
                netlink.add(one.address, home, attributes(one.address, label))
            except NetlinkRefusedError as error:
                failures[one.address] = f"{error}{_hint(error, one.address, home)}"
        return failures

    def _read(self, netlink: Netlink) -> AddressState:
        link = netlink.link(self._interface)
        usable = link is not None and self._is_usable(link)
        found = netlink.addresses()
        addresses = (owned(one, self._ranges, self._interface, device_is_ours=usable) for one in found)
        if link is None:
            return AddressState(tuple(addresses), self._interface, "absent")
        status: DeviceStatus = "foreign" if not usable else "up" if link.up else "down"
        made_by_us = usable and link.alias == ALIAS
        return AddressState(tuple(addresses), self._interface, status, link.kind, made_by_us)

    def _is_usable(self, link: Link) -> bool:
        """Return nodeagent's device, or one of that kind that an administrator provided without an alias."""
        return link.kind == self._kind and link.alias in ("", ALIAS)

    def _ready(self, netlink: Netlink, diff: AddressDiff) -> str:
        """Make the device ready and return it, or `lo` if the kernel has no such kind."""
        name = diff.home
        if diff.step == "set up":
            netlink.set_up(name)
        if diff.step != "create":
            return name
        try:
            netlink.make(name, self._kind, ALIAS)
        except NetlinkRefusedError as error:
            if error.errno == EOPNOTSUPP:  # "Unknown device type"
                return "lo"
            link = netlink.link(name)
            if error.errno != EEXIST or link is None or not self._is_usable(link):
                raise
            netlink.set_up(name)  # another program was faster
        return name


def _remove(netlink: Netlink, diff: AddressDiff) -> dict[IPAddress, str]:
    """Return the addresses that could not be removed, and why."""
    failures: dict[IPAddress, str] = {}
    for one in diff.remove:
        try:
            netlink.remove(one.address, one.prefix_length, one.interface)
        except NetlinkRefusedError as error:
            failures[one.address] = f"{error}{_hint(error, one.address, one.interface)}"
    if diff.step == "delete":
        netlink.delete(diff.home)
    return failures


def _hint(error: NetlinkRefusedError, address: IPAddress, device: str) -> str:
    if address.version == 6 and error.errno == EACCES:
        return f"; IPv6 is switched off there (sysctl net.ipv6.conf.{device}.disable_ipv6)"
    if address.version == 6 and error.errno in (EOPNOTSUPP, EAFNOSUPPORT):
        return "; this kernel runs without IPv6 (ipv6.disable=1)"
    return "; it needs root or CAP_NET_ADMIN" if error.errno == EPERM else ""
