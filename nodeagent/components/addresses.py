"""The relay addresses as a component of the node: on a dummy device, or on `lo` if the kernel has none.

On nodeagent's own device every address in the configured ranges is nodeagent's. On `lo`, which belongs to the
system, only an address in the ranges that has a mark:

- IPv4: the label `lo:hairpin0`, which the kernel keeps with the address.
- IPv6 has no labels: a host address is nodeagent's if it is deprecated forever, without DAD and without a
  prefix route, as nodeagent adds it and hardly any other program would.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EACCES, EAFNOSUPPORT, EEXIST, EOPNOTSUPP, EPERM
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Literal

from msgspec import Struct

from nodeagent.components.component import Component, Diff
from nodeagent.linux import netlink as kernel
from nodeagent.linux.netlink import KernelAddress, Link, Netlink, NetlinkRefusedError, opened
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired, RelayAddress
from nodeagent.model.facts import InterfaceAddress

DeviceStatus = Literal["absent", "up", "down", "foreign"]
DeviceStep = Literal["keep", "create", "set up", "delete"]
_NOT_SERVED = "; its load balancer is not served"


class AddressState(Struct, frozen=True):
    """All addresses of the node, and the relay's device; `made_by_us`: it has nodeagent's alias."""

    addresses: tuple[InterfaceAddress, ...]
    device: str
    status: DeviceStatus
    kind: str = ""
    made_by_us: bool = False
    notes: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def ours(self) -> tuple[InterfaceAddress, ...]:
        return tuple(address for address in self.addresses if address.ours)


@dataclass(frozen=True, slots=True)
class AddressDiff(Diff):
    """What is done. `refused` says why desired addresses are not available: no difference by itself."""

    before: AddressState = field(repr=False)
    home: str
    step: DeviceStep = "keep"
    add: tuple[RelayAddress, ...] = ()
    remove: tuple[InterfaceAddress, ...] = ()
    refused: Mapping[IPAddress, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.step != "keep" or self.add or self.remove)

    @property
    def how(self) -> str:
        place = f"on a new device {self.home}, or on lo if the kernel can't make it"
        return place if self.step == "create" else ""

    @property
    def problem(self) -> str:
        return _lines(self.refused, _NOT_SERVED)

    @property
    def text(self) -> str:
        refused = (f"! {address}: {reason}" for address, reason in self.refused.items())
        return "\n".join(filter(None, (*refused, str(self))))

    def __str__(self) -> str:
        lines = [f"~ device {self.home}: set up"] if self.step == "set up" else []
        home = "" if self.step == "create" else f" on {self.home}"
        lines += [f"+ {new.address}{home} ({new.load_balancer})" for new in self.add]
        lines += [f"- {old.address}/{old.prefix_length} on {old.interface}" for old in self.remove]
        if self.step == "delete":
            lines.append(f"- device {self.home}")
        return "\n".join(lines)


def _lines(failures: Mapping[IPAddress, str], consequence: str = "") -> str:
    return "\n".join(f"relay address {address}: {why}{consequence}" for address, why in failures.items())


def _refusals(state: AddressState, desired: tuple[RelayAddress, ...]) -> dict[IPAddress, str]:
    taken = {address.address: address.interface for address in state.addresses if not address.ours}
    refused = {
        wanted.address: f"it is on {taken[wanted.address]} already, added by another program; remove it "
        "there or choose another relay range"
        for wanted in desired
        if wanted.address in taken
    }
    if state.status != "foreign":
        return refused
    reason = (
        f"the device {state.device} ({state.kind or 'not a virtual device'}) is not nodeagent's and was "
        "left unchanged; rename or delete it, or set relay.interface to another name"
    )
    standing = {address.address for address in state.ours}
    return {wanted.address: reason for wanted in desired if wanted.address not in standing} | refused


_ALIAS = "nodeagent"
"""The alias (IFLA_IFALIAS) of a device that nodeagent made: `ip link` shows it."""

# IFA_F_* of include/uapi/linux/if_addr.h: NODAD makes an address usable at once; NOPREFIXROUTE keeps the
# route out of the main table (the local one is enough); DEPRECATED comes of a preferred lifetime of 0.
_NODAD, _DEPRECATED, _NOPREFIXROUTE = 0x02, 0x20, 0x200
_FLAGS_GIVEN = _NODAD | _NOPREFIXROUTE
_FLAGS_SHOWN = _FLAGS_GIVEN | _DEPRECATED

# RT_SCOPE_HOST of include/uapi/linux/rtnetlink.h: inet_select_addr() skips an address whose scope is narrower
# than the destination's, so this one is never the source of traffic that leaves the node.
_SCOPE_HOST = 254

_FOREVER = 0xFFFFFFFF

Ranges = tuple[IPv4Network, IPv6Network]


def _label_on_lo(device: str) -> str:
    return f"lo:{device}"[:15]  # IFNAMSIZ - 1


def _attributes(address: IPAddress, label: str) -> Mapping[str, object]:
    """Return the attributes with which nodeagent adds an address, by pyroute2's names.

    A preferred lifetime of 0 keeps an IPv6 address out of source selection (RFC 6724, rule 3), but on a node
    that has a route for IPv6 and only link-local addresses (rule 2).
    """
    if isinstance(address, IPv6Address):
        return {"flags": _FLAGS_GIVEN, "preferred_lft": 0, "valid_lft": _FOREVER}
    return {"scope": _SCOPE_HOST, "label": label}


def _marked(address: KernelAddress, device: str) -> bool:
    if address.interface != "lo" or address.prefix_length != address.address.max_prefixlen:
        return False
    if not isinstance(address.address, IPv6Address):
        return address.label == _label_on_lo(device)
    return address.flags & _FLAGS_SHOWN == _FLAGS_SHOWN


class AddressWatch(kernel.Notifications):
    """Implements `component.Watch`: addresses in the ranges, and the device."""

    def __init__(self, interface: str, ranges: Ranges) -> None:
        super().__init__(kernel.address_socket(), kernel.ADDRESS_GROUPS)
        self._interface = interface
        self._ranges = ranges
        try:
            self._index = socket.if_nametoindex(interface)
        except OSError:
            self._index = 0  # not made yet; its first notification shows it

    def drain(self) -> str:
        return "; ".join(dict.fromkeys(filter(None, map(self._concerned, self.messages()))))

    def _concerned(self, message: Any) -> str:  # noqa: ANN401 - pyroute2 has no types
        event = message["event"]
        if event in {"RTM_NEWADDR", "RTM_DELADDR"}:
            address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if address is None or not any(ip_address(address) in network for network in self._ranges):
                return ""
            # Another program's in the ranges counts, too: once it is removed, a load balancer can be served.
            return f"{address} was {'added' if event == 'RTM_NEWADDR' else 'removed'}"
        # A bridge sends DELLINK with its own family when a port leaves it.
        if message["family"] != socket.AF_UNSPEC:
            return ""
        if message.get_attr("IFLA_IFNAME") == self._interface:
            self._index = message["index"]
        elif message["index"] != self._index:
            return ""
        return f"the device {self._interface} was changed"


class Addresses(Component[AddressState, AddressDiff]):
    """Implements `component.Component`. One address's failure does not affect the others."""

    def __init__(self, interface: str, ranges: Ranges, kind: str = "dummy") -> None:
        self._interface = interface
        self._ranges = ranges
        self._kind = kind

    def read(self) -> AddressState:
        with opened() as netlink:
            link = netlink.link(self._interface)
            listed = netlink.addresses()
        usable = link is not None and self._is_usable(link)
        addresses = tuple(self._owned(address, usable=usable) for address in listed)
        if link is None:
            return AddressState(addresses, self._interface, "absent")
        status: DeviceStatus = "foreign" if not usable else "up" if link.up else "down"
        return AddressState(addresses, self._interface, status, link.kind, usable and link.alias == _ALIAS)

    def diff(self, actual: AddressState, desired: Desired, *, keep: bool = False) -> AddressDiff:
        """Return the difference; if no address is desired, only a device that nodeagent made is deleted."""
        addresses = desired.addresses
        if not addresses and actual.made_by_us and not keep:
            # What is on the device is removed with it.
            elsewhere = tuple(address for address in actual.ours if address.interface != actual.device)
            return AddressDiff(before=actual, home=actual.device, step="delete", remove=elsewhere)
        # `lo` only while nodeagent's addresses are there and the device does not exist.
        home = "lo" if actual.status == "absent" and actual.ours else actual.device
        refused = _refusals(actual, addresses)
        at_home = {address.address for address in actual.ours if address.interface == home}
        add = tuple(new for new in addresses if new.address not in refused and new.address not in at_home)
        wanted = {address.address for address in addresses}
        step: DeviceStep = "keep"
        if home == actual.device and (add or wanted & at_home):
            step = "create" if actual.status == "absent" else "set up" if actual.status == "down" else "keep"
        # One that is desired stays on the right device; or on any, if the right one is not available.
        remove = tuple(
            address
            for address in (() if keep else actual.ours)
            if address.address not in wanted or (address.interface != home and address.address not in refused)
        )
        return AddressDiff(actual, home, step, add, remove, refused)

    def apply(self, diff: AddressDiff) -> str:
        missing: dict[IPAddress, str] = {}
        left: dict[IPAddress, str] = {}
        with opened() as netlink:
            try:
                home = self._ready(netlink, diff)
            except NetlinkRefusedError as error:
                missing = {new.address: f"{error}{_hint(error, new.address, diff.home)}" for new in diff.add}
            else:
                label = _label_on_lo(self._interface) if home == "lo" else home
                for new in diff.add:
                    with _noting(missing, new.address, home):
                        netlink.add(new.address, home, _attributes(new.address, label))
            for address in diff.remove:
                with _noting(left, address.address, address.interface):
                    netlink.remove(address.address, address.prefix_length, address.interface)
            if diff.step == "delete":
                netlink.delete(diff.home)
        return "\n".join(filter(None, (_lines(missing, _NOT_SERVED), _lines(left))))

    def watch(self) -> AddressWatch:
        return AddressWatch(self._interface, self._ranges)

    def ready(self, actual: AddressState, desired: Desired) -> Mapping[Endpoint, str]:
        """Return those whose address the node has: a listening socket outlives its address."""
        present = {address.address for address in actual.ours}
        return {listener.bind: "" for listener in desired.listeners if listener.bind.address in present}

    def _is_usable(self, link: Link) -> bool:
        """Whether it is nodeagent's, or one of that kind that an administrator provided without an alias."""
        return link.kind == self._kind and link.alias in ("", _ALIAS)

    def _owned(self, address: KernelAddress, *, usable: bool) -> InterfaceAddress:
        ours = usable if address.interface == self._interface else _marked(address, self._interface)
        ours = ours and any(address.address in network for network in self._ranges)
        return InterfaceAddress(address.address, address.prefix_length, address.interface, ours=ours)

    def _ready(self, netlink: Netlink, diff: AddressDiff) -> str:
        """Make the device ready and return it, or `lo` if the kernel has no such kind."""
        name = diff.home
        if diff.step == "set up":
            netlink.set_up(name)
        if diff.step != "create":
            return name
        try:
            netlink.make(name, self._kind, _ALIAS)
        except NetlinkRefusedError as error:
            if error.errno == EOPNOTSUPP:  # "Unknown device type"
                return "lo"
            link = netlink.link(name)
            if error.errno != EEXIST or link is None or not self._is_usable(link):
                raise
            netlink.set_up(name)  # another program was faster
        return name


@contextmanager
def _noting(failures: dict[IPAddress, str], address: IPAddress, device: str) -> Iterator[None]:
    try:
        yield
    except NetlinkRefusedError as error:
        failures[address] = f"{error}{_hint(error, address, device)}"


def _hint(error: NetlinkRefusedError, address: IPAddress, device: str) -> str:
    if address.version == 6 and error.errno == EACCES:
        return f"; IPv6 is switched off there (sysctl net.ipv6.conf.{device}.disable_ipv6)"
    if address.version == 6 and error.errno in (EOPNOTSUPP, EAFNOSUPPORT):
        return "; this kernel runs without IPv6 (ipv6.disable=1)"
    return "; it needs root or CAP_NET_ADMIN" if error.errno == EPERM else ""
