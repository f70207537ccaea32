"""What has to change so that the desired relay addresses stand, and no others of ours. PURE."""

from collections.abc import Iterable

from nodeagent.components.addresses.state import AddressChange, AddressState, DeviceStep
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import RelayAddress
from nodeagent.model.facts import InterfaceAddress


def change_towards(state: AddressState, desired: tuple[RelayAddress, ...]) -> AddressChange:
    """The change from `state` to `desired`.

    An address that stands on `lo` although the device exists is moved: added there first, then removed here.
    Where the addresses stand on `lo` and there is no device they stay: nothing is wrong with them.
    A device that nodeagent made is deleted when no address is desired.

    Args:
        state: What stands.
        desired: The relay addresses, both families; the order is kept.

    Returns:
        The change; false when all that can stand does.
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
    """The device for new addresses: `lo` only while addresses of ours are there and the device is not."""
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
    """Desired, and where it belongs; or where it can't get there, wherever it stands."""
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
