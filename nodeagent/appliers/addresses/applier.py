"""Reads and changes this node's relay addresses. EFFECTS by netlink; what to do is decided in decision.py."""

from collections.abc import Iterable
from errno import EACCES, EAFNOSUPPORT, EEXIST, EOPNOTSUPP, EPERM

from nodeagent.appliers.addresses.decision import change_towards, removal
from nodeagent.appliers.addresses.netlink import Link, Netlink, NetlinkRefusedError, opened
from nodeagent.appliers.addresses.ownership import ALIAS, Ranges, label_on_lo, owned
from nodeagent.appliers.addresses.state import AddressChange, AddressResult, AddressState, DeviceStatus
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import RelayAddress


class AddressApplier:
    """Keeps relay addresses on a device of their own, or on `lo` where the kernel can't make one.

    `grow` and `shrink` are the two halves of a change, for the relay has to be told in between. Both are
    idempotent, and one address's failure does not hinder the others.

    Args:
        interface: The device's name.
        ranges: The IPv4 and the IPv6 range that relay addresses come out of.
        kind: The kind of device to make and to accept, in the kernel's word.
    """

    def __init__(self, interface: str, ranges: Ranges, kind: str = "dummy") -> None:
        self._interface = interface
        self._ranges = ranges
        self._kind = kind

    def read(self) -> AddressState:
        """All addresses of the node. Needs no privilege.

        Raises:
            ApplyError: netlink does not answer.
        """
        with opened() as netlink:
            return self._read(netlink)

    def change(self, state: AddressState, desired: tuple[RelayAddress, ...]) -> AddressChange:
        """What leads from `state` to `desired`. PURE."""
        return change_towards(state, desired)

    def removal(self, state: AddressState) -> AddressChange:
        """What takes every trace away; for `shrink`. PURE."""
        return removal(state)

    def grow(self, change: AddressChange) -> AddressResult:
        """Make the device if need be and add the addresses; removes nothing.

        Returns:
            What stands afterwards, and why each address that does not stand failed.

        Raises:
            ApplyError: netlink does not answer.
        """
        with opened() as netlink:
            failures = dict(change.refused)
            try:
                home = self._ready(netlink, change)
            except NetlinkRefusedError as error:
                failures |= {one.address: f"{error}{_hint(error)}" for one in change.add}
            else:
                failures |= self._add(netlink, (one.address for one in change.add), home)
            return self._result(netlink, failures, wanted=(one.address for one in change.add))

    def shrink(self, change: AddressChange) -> AddressResult:
        """Remove the addresses that go, and the device where the change says so; adds nothing.

        Returns:
            What stands afterwards, and why each address that could not be removed still does.

        Raises:
            ApplyError: netlink does not answer, or the device can't be deleted.
        """
        failures: dict[IPAddress, str] = {}
        with opened() as netlink:
            for one in change.remove:
                try:
                    netlink.remove(one.address, one.prefix_length, one.interface)
                except NetlinkRefusedError as error:
                    failures[one.address] = f"{error}{_hint(error)}"
            if change.step == "delete":
                netlink.delete(change.home)
            return self._result(netlink, failures)

    def cleanup(self) -> AddressResult:
        """Remove every address of ours and the device if nodeagent made it. Errors as in `shrink`."""
        return self.shrink(self.removal(self.read()))

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
        """Ours, or one of the right kind that an administrator provided without an alias of his own."""
        return link.kind == self._kind and link.alias in ("", ALIAS)

    def _ready(self, netlink: Netlink, change: AddressChange) -> str:
        """Make the device ready; returns the one to use."""
        if change.step == "create":
            return self._made(netlink, change.home)
        if change.step == "set up":
            netlink.set_up(change.home)
        return change.home

    def _made(self, netlink: Netlink, name: str) -> str:
        """Make the device; returns `lo` where the kernel has no such kind ("Unknown device type")."""
        try:
            netlink.make(name, self._kind)
        except NetlinkRefusedError as error:
            if error.errno == EOPNOTSUPP:
                return "lo"
            link = netlink.link(name)
            if error.errno != EEXIST or link is None or not self._is_usable(link):
                raise
            netlink.set_up(name)  # somebody was quicker
        return name

    def _add(self, netlink: Netlink, addresses: Iterable[IPAddress], home: str) -> dict[IPAddress, str]:
        label = label_on_lo(self._interface) if home == "lo" else home
        failures: dict[IPAddress, str] = {}
        for address in addresses:
            try:
                netlink.add(address, home, label)
            except NetlinkRefusedError as error:
                failures[address] = f"{error}{_hint_for(error, address, home)}"
        return failures

    def _result(
        self, netlink: Netlink, failures: dict[IPAddress, str], wanted: Iterable[IPAddress] = ()
    ) -> AddressResult:
        """What stands, read back; a wanted address that does not stand as ours is a failure."""
        standing = frozenset(one.address for one in self._read(netlink).ours)
        lost = dict.fromkeys(wanted, "it was added but does not stand as nodeagent's")
        lost = {address: reason for address, reason in lost.items() if address not in standing}
        return AddressResult(standing, lost | failures)


def _hint(error: NetlinkRefusedError) -> str:
    return "; it needs root or CAP_NET_ADMIN" if error.errno == EPERM else ""


def _hint_for(error: NetlinkRefusedError, address: IPAddress, device: str) -> str:
    if address.version == 6 and error.errno == EACCES:
        return f"; IPv6 is switched off there (sysctl net.ipv6.conf.{device}.disable_ipv6)"
    if address.version == 6 and error.errno in (EOPNOTSUPP, EAFNOSUPPORT):
        return "; this kernel runs without IPv6 (ipv6.disable=1)"
    return _hint(error)
