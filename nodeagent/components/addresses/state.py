"""The actual state of the relay addresses, and their difference from the desired ones. Pure.

On nodeagent's own device every address in the configured ranges is nodeagent's. On `lo`, which belongs to the
system, only an address in the ranges that has a mark:

- IPv4: the label `lo:hairpin0`, which the kernel keeps with the address.
- IPv6 has no labels: a host address is nodeagent's if it is deprecated forever, without DAD and without a
  prefix route, as nodeagent adds it and hardly any other program would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Literal

from msgspec import Struct

from nodeagent.components.component import Diff
from nodeagent.linux.netlink import KernelAddress
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import RelayAddress
from nodeagent.model.facts import InterfaceAddress

DeviceStatus = Literal["absent", "up", "down", "foreign"]

DeviceStep = Literal["keep", "create", "set up", "delete"]


class AddressState(Struct, frozen=True):
    """All addresses of the node, and the device for the relay's.

    `kind` is the kernel's kind of the device (`dummy`), empty if it does not exist. `made_by_us` is true if
    the device has nodeagent's alias: cleanup deletes such a device, and only empties any other.
    """

    addresses: tuple[InterfaceAddress, ...]
    device: str
    status: DeviceStatus
    kind: str = ""
    made_by_us: bool = False
    notes: tuple[str, ...] = ()
    """None: a problem with an address is an error when it is applied."""
    unreadable: str = ""
    """Never: any user can list addresses."""

    @property
    def ours(self) -> tuple[InterfaceAddress, ...]:
        """The relay addresses that nodeagent put on the node, on whichever device."""
        return tuple(address for address in self.addresses if address.ours)


@dataclass(frozen=True, slots=True)
class AddressDiff(Diff):
    """What is done with the relay addresses.

    `home` is the device for the addresses of `add`. `refused` says for each desired address that is not
    available why not; it alone is no difference.
    """

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
        """Where addresses are added whose device is not made yet."""
        made = f"on a new device {self.home}, or on lo if the kernel can't make it"
        return made if self.step == "create" else ""

    @property
    def problem(self) -> str:
        """Why addresses are not available, a line each."""
        return failures_text(self.refused, NOT_SERVED)

    @property
    def text(self) -> str:
        """All of it, with what is refused."""
        refused = (f"! {address}: {reason}" for address, reason in self.refused.items())
        return "\n".join(filter(None, (*refused, str(self))))

    def __str__(self) -> str:
        lines = [f"~ device {self.home}: set up"] if self.step == "set up" else []
        home = "" if self.step == "create" else f" on {self.home}"
        lines += [f"+ {one.address}{home} ({one.load_balancer})" for one in self.add]
        lines += [f"- {one.address}/{one.prefix_length} on {one.interface}" for one in self.remove]
        if self.step == "delete":
            lines.append(f"- device {self.home}")
        return "\n".join(lines)


NOT_SERVED = "; its load balancer is not served"


def failures_text(failures: Mapping[IPAddress, str], consequence: str = "") -> str:
    """Return a line for each address."""
    return "\n".join(f"relay address {address}: {why}{consequence}" for address, why in failures.items())


def difference(state: AddressState, desired: tuple[RelayAddress, ...], *, keep: bool = False) -> AddressDiff:
    """Return the difference from `state` to `desired`.

    An address that is on `lo` although the device exists is moved: added to the device, then removed from
    `lo`. If the addresses are on `lo` and there is no device, they stay: that is correct. A device that
    nodeagent made is deleted if no address is desired.

    Args:
        state: The actual state.
        desired: The relay addresses, both families; the order is kept.
        keep: Remove nothing.

    Returns:
        The difference; false if all available addresses exist.
    """
    if not desired and state.made_by_us and not keep:
        # What is on the device is removed with it.
        elsewhere = tuple(one for one in state.ours if one.interface != state.device)
        return AddressDiff(before=state, home=state.device, step="delete", remove=elsewhere)
    # `lo` only while nodeagent's addresses are there and the device does not exist.
    home = "lo" if state.status == "absent" and state.ours else state.device
    refused = _refusals(state, desired)
    at_home = {one.address for one in state.ours if one.interface == home}
    add = tuple(one for one in desired if one.address not in refused and one.address not in at_home)
    wanted = {one.address for one in desired}
    step: DeviceStep = "keep"
    if home == state.device and (add or wanted & at_home):
        step = "create" if state.status == "absent" else "set up" if state.status == "down" else "keep"
    # One that is desired stays on the right device; or on any, if the right one is not available.
    remove = tuple(
        one
        for one in (() if keep else state.ours)
        if one.address not in wanted or (one.interface != home and one.address not in refused)
    )
    return AddressDiff(state, home, step, add, remove, refused)


def _refusals(state: AddressState, desired: tuple[RelayAddress, ...]) -> dict[IPAddress, str]:
    taken = {one.address: one for one in state.addresses if not one.ours}
    refused = {
        one.address: f"it is on {taken[one.address].interface} already, added by another program; remove it "
        "there or choose another relay range"
        for one in desired
        if one.address in taken
    }
    if state.status != "foreign":
        return refused
    reason = (
        f"the device {state.device} ({state.kind or 'not a virtual device'}) is not nodeagent's and was "
        "left unchanged; rename or delete it, or set relay.interface to another name"
    )
    standing = {one.address for one in state.ours}
    return {one.address: reason for one in desired if one.address not in standing} | refused


ALIAS = "nodeagent"
"""The alias (IFLA_IFALIAS) of a device that nodeagent made: `ip link` shows it."""

# IFA_F_* of include/uapi/linux/if_addr.h: NODAD makes an address usable at once; NOPREFIXROUTE keeps the
# route out of the main table (the one in the local table is enough); DEPRECATED is the result of a preferred
# lifetime of 0.
NODAD, DEPRECATED, NOPREFIXROUTE = 0x02, 0x20, 0x200
FLAGS_GIVEN = NODAD | NOPREFIXROUTE
_FLAGS_SHOWN = FLAGS_GIVEN | DEPRECATED

# RT_SCOPE_HOST of include/uapi/linux/rtnetlink.h: inet_select_addr() skips an address whose scope is narrower
# than the destination's, so this one is never the source of traffic that leaves the node.
_SCOPE_HOST = 254

_FOREVER = 0xFFFFFFFF

Ranges = tuple[IPv4Network, IPv6Network]


def label_on_lo(device: str) -> str:
    """Return the label of an IPv4 address on `lo`: at most 15 bytes (IFNAMSIZ - 1), as for an interface."""
    return f"lo:{device}"[:15]


def attributes(address: IPAddress, label: str) -> Mapping[str, object]:
    """Return the attributes with which nodeagent adds an address, by pyroute2's names.

    IPv6 has no scope to keep an address out of source selection. The preferred lifetime of 0 does
    (RFC 6724, rule 3): it can be bound and reached, but any other address of the node with the
    destination's scope is preferred as a source. The exception is a node that has a route for IPv6 and
    only link-local addresses: the kernel has no other choice there (rule 2).

    Args:
        address: The address.
        label: For an IPv4 address.
    """
    if isinstance(address, IPv6Address):
        return {"flags": FLAGS_GIVEN, "preferred_lft": 0, "valid_lft": _FOREVER}
    return {"scope": _SCOPE_HOST, "label": label}


def owned(found: KernelAddress, ranges: Ranges, device: str, *, device_is_ours: bool) -> InterfaceAddress:
    """Return the address as the planner sees it, and whether it is nodeagent's."""
    in_range = any(found.address in network for network in ranges)
    if found.interface == device:
        ours = in_range and device_is_ours
    else:
        ours = in_range and found.interface == "lo" and _marked(found, device)
    return InterfaceAddress(found.address, found.prefix_length, found.interface, ours=ours)


def _marked(found: KernelAddress, device: str) -> bool:
    if found.prefix_length != found.address.max_prefixlen:
        return False
    if not isinstance(found.address, IPv6Address):
        return found.label == label_on_lo(device)
    return found.flags & _FLAGS_SHOWN == _FLAGS_SHOWN
