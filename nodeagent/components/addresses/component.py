"""The relay addresses as a component of the node. Effects by netlink; state.py decides."""

from collections.abc import Mapping
from dataclasses import replace
from errno import EACCES, EAFNOSUPPORT, EEXIST, EOPNOTSUPP, EPERM

from nodeagent.components.addresses.state import (
    ALIAS,
    AddressChange,
    AddressState,
    DeviceStatus,
    Ranges,
    attributes,
    change_towards,
    label_on_lo,
    owned,
)
from nodeagent.components.component import Change, ComponentName, Half, PartlyAppliedError, Preview
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired
from nodeagent.netlink import Link, Netlink, NetlinkRefusedError, opened

_NOT_SERVED = "; its load balancer is not served, the others are"


class Addresses:
    """Implements `component.Component`: relay addresses on a device of their own, or on `lo`.

    They are on `lo` if the kernel can't make such a device. One address's failure does not affect the others.

    Args:
        interface: The device's name.
        ranges: The IPv4 and the IPv6 range of relay addresses.
        kind: The kind of device to make and to accept, by the kernel's name.
    """

    name: ComponentName = "addresses"

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

    def diff(self, actual: AddressState, desired: Desired) -> Change[AddressState, AddressChange]:
        """Return what leads to the desired addresses. Pure."""
        change = change_towards(actual, desired.addresses)
        return Change(
            change,
            grow=Half(change.growth, lambda: self._grow(change)),
            shrink=Half(change.shrinkage, lambda: self._shrink(change)),
            preview=lambda: Preview(str(change)),
        )

    def _grow(self, change: AddressChange) -> AddressState:
        """Make the device if necessary and add the addresses; remove nothing."""
        if not change.growth:
            return _whole(change.before, change.refused, _NOT_SERVED)
        with opened() as netlink:
            failures = dict(change.refused)
            home = change.home
            try:
                home = self._ready(netlink, change)
            except NetlinkRefusedError as error:
                failures |= {one.address: f"{error}{_hint(error)}" for one in change.add}
            else:
                label = label_on_lo(self._interface) if home == "lo" else home
                for one in change.add:
                    try:
                        netlink.add(one.address, home, attributes(one.address, label))
                    except NetlinkRefusedError as error:
                        failures[one.address] = f"{error}{_hint_for(error, one.address, home)}"
            state = self._read(netlink)
        added = {one.address for one in state.ours}
        for one in change.add:
            if one.address not in added:
                failures.setdefault(
                    one.address, "it was added, but the kernel does not show it as nodeagent's"
                )
        made = tuple(one for one in change.add if one.address in added)
        applied = replace(change, home=home, step="keep", add=made)
        return _whole(state, failures, _NOT_SERVED, applied.growth)

    def _shrink(self, change: AddressChange) -> AddressState:
        """Remove the addresses of the change, and the device if the change says so; add nothing."""
        if not change.shrinkage:
            return change.before
        failures: dict[IPAddress, str] = {}
        with opened() as netlink:
            for one in change.remove:
                try:
                    netlink.remove(one.address, one.prefix_length, one.interface)
                except NetlinkRefusedError as error:
                    failures[one.address] = f"{error}{_hint(error)}"
            if change.step == "delete":
                netlink.delete(change.home)
            state = self._read(netlink)
        gone = tuple(one for one in change.remove if one.address not in failures)
        return _whole(state, failures, applied=replace(change, remove=gone).shrinkage)

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

    def _ready(self, netlink: Netlink, change: AddressChange) -> str:
        """Make the device ready and return it, or `lo` if the kernel has no such kind."""
        name = change.home
        if change.step == "set up":
            netlink.set_up(name)
        if change.step != "create":
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


def _whole(
    state: AddressState, failures: Mapping[IPAddress, str], consequence: str = "", applied: str = ""
) -> AddressState:
    """Return the state. Raises PartlyAppliedError if there are failures."""
    if failures:
        lines = (f"relay address {address}: {why}{consequence}" for address, why in failures.items())
        raise PartlyAppliedError("\n".join(lines), state, applied)
    return state


def _hint(error: NetlinkRefusedError) -> str:
    return "; it needs root or CAP_NET_ADMIN" if error.errno == EPERM else ""


def _hint_for(error: NetlinkRefusedError, address: IPAddress, device: str) -> str:
    if address.version == 6 and error.errno == EACCES:
        return f"; IPv6 is switched off there (sysctl net.ipv6.conf.{device}.disable_ipv6)"
    if address.version == 6 and error.errno in (EOPNOTSUPP, EAFNOSUPPORT):
        return "; this kernel runs without IPv6 (ipv6.disable=1)"
    return _hint(error)
