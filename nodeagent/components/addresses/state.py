"""The actual state of the relay addresses, and the change that leads to the desired ones. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

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

    @property
    def ours(self) -> tuple[InterfaceAddress, ...]:
        """The relay addresses that nodeagent put on the node, on whichever device."""
        return tuple(address for address in self.addresses if address.ours)

    @property
    def notes(self) -> tuple[str, ...]:
        """None: a problem with an address is an error of the change."""
        return ()


@dataclass(frozen=True, slots=True)
class AddressChange:
    """The required changes, for a person; true if there are any.

    `home` is the device for the addresses of `add`. `refused` says for each desired address that is not
    available why not; such an address makes the change true only if something else is to be done.
    """

    before: AddressState = field(repr=False)
    home: str
    step: DeviceStep = "keep"
    add: tuple[RelayAddress, ...] = ()
    remove: tuple[InterfaceAddress, ...] = ()
    refused: Mapping[IPAddress, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.step != "keep" or self.add or self.remove)

    def __str__(self) -> str:
        lines = [f"! {address}: {reason}" for address, reason in self.refused.items()]
        return "\n".join([*lines, *filter(None, (self.growth, self.shrinkage))])

    @property
    def growth(self) -> str:
        """What is made and added, one line each."""
        lines = []
        if self.step == "create":
            lines.append(f"+ device {self.home} (the addresses go on lo if the kernel can't make it)")
        elif self.step == "set up":
            lines.append(f"~ device {self.home}: set up")
        home = "" if self.step == "create" else f" on {self.home}"
        lines += [f"+ {one.address}{home} ({one.load_balancer})" for one in self.add]
        return "\n".join(lines)

    @property
    def shrinkage(self) -> str:
        """What is removed, one line each."""
        lines = [f"- {one.address}/{one.prefix_length} on {one.interface}" for one in self.remove]
        if self.step == "delete":
            lines.append(f"- device {self.home}")
        return "\n".join(lines)


def change_towards(state: AddressState, desired: tuple[RelayAddress, ...]) -> AddressChange:
    """Return the change from `state` to `desired`.

    An address that is on `lo` although the device exists is moved: added to the device, then removed from
    `lo`. If the addresses are on `lo` and there is no device, they stay: that is correct. A device that
    nodeagent made is deleted if no address is desired.

    Args:
        state: The actual state.
        desired: The relay addresses, both families; the order is kept.

    Returns:
        The change; false if all available addresses exist.
    """
    if not desired and state.made_by_us:
        # What is on the device is removed with it.
        elsewhere = tuple(one for one in state.ours if one.interface != state.device)
        return AddressChange(before=state, home=state.device, step="delete", remove=elsewhere)
    home = _home(state)
    refused = _refusals(state, desired)
    at_home = {one.address for one in state.ours if one.interface == home}
    add = tuple(one for one in desired if one.address not in refused and one.address not in at_home)
    wanted = {one.address for one in desired}
    return AddressChange(
        before=state,
        home=home,
        step=_step(state, home, needed=bool(add or wanted & at_home)),
        add=add,
        remove=tuple(one for one in state.ours if not _stays(one, wanted, home, refused)),
        refused=refused,
    )


def _home(state: AddressState) -> str:
    """Return the device for new addresses.

    `lo` only while nodeagent's addresses are there and the device does not exist.
    """
    return "lo" if state.status == "absent" and state.ours else state.device


def _step(state: AddressState, home: str, *, needed: bool) -> DeviceStep:
    if home != state.device or not needed:
        return "keep"
    if state.status == "absent":
        return "create"
    return "set up" if state.status == "down" else "keep"


def _stays(
    one: InterfaceAddress, wanted: Iterable[IPAddress], home: str, refused: Iterable[IPAddress]
) -> bool:
    """Whether it is desired, and on the right device; or on any, if the right one is not available."""
    return one.address in wanted and (one.interface == home or one.address in refused)


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
