"""What the tests of this folder share: ranges, addresses, one whole pass."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from nodeagent.components.addresses.component import Addresses
from nodeagent.components.addresses.state import AddressChange, AddressState
from nodeagent.components.component import Change
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, RelayAddress
from nodeagent.model.objects import ObjectRef

RANGES = (IPv4Network("169.254.66.0/24"), IPv6Network("fd68:6169:7270::/112"))
FOUR, SIX = "169.254.66.5", "fd68:6169:7270::5"


def relay(*addresses: str) -> tuple[RelayAddress, ...]:
    """Relay addresses, all for one Service."""
    owner = ObjectRef("Service", "ingress-nginx", "controller")
    return tuple(RelayAddress(ip_address(address), owner) for address in addresses)


def apply(component: Addresses, *addresses: str) -> AddressChange:
    """One whole pass, in which nothing may fail; returns the change."""
    desired = Desired(addresses=relay(*addresses))
    change = component.diff(component.read(), desired)
    left = component.diff(change.grow.apply(), desired).shrink.apply()
    assert held(left) == {ip_address(address) for address in addresses}
    return change.detail


def difference(component: Addresses, *addresses: str) -> Change[AddressState, AddressChange]:
    """What leads to these relay addresses, as read now."""
    return component.diff(component.read(), Desired(addresses=relay(*addresses)))


def clean_up(component: Addresses) -> AddressState:
    """Remove all that is ours."""
    return difference(component).shrink.apply()


def held(state: AddressState) -> set[IPAddress]:
    """The relay addresses that are there, on whichever device."""
    return {one.address for one in state.ours}
