"""What the tests of this folder share: ranges, addresses, one whole pass."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from nodeagent.components.addresses import AddressDiff, Addresses, AddressState
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, RelayAddress
from nodeagent.model.objects import ObjectRef
from tests.components.converging import converge

RANGES = (IPv4Network("169.254.66.0/24"), IPv6Network("fd68:6169:7270::/112"))
FOUR, SIX = "169.254.66.5", "fd68:6169:7270::5"


def desired(*addresses: str) -> Desired:
    owner = ObjectRef("Service", "ingress-nginx", "controller")
    return Desired(addresses=tuple(RelayAddress(ip_address(address), owner) for address in addresses))


def apply(component: Addresses, *addresses: str) -> AddressDiff:
    """One whole pass, in which nothing may fail; returns the difference that it found."""
    diff = difference(component, *addresses)
    assert converge(component, desired(*addresses)) == ""
    assert held(component.read()) == {ip_address(address) for address in addresses}
    return diff


def difference(component: Addresses, *addresses: str) -> AddressDiff:
    """What leads to these relay addresses, as read now."""
    return component.diff(component.read(), desired(*addresses))


def clean_up(component: Addresses) -> None:
    assert component.apply(difference(component)) == ""


def held(state: AddressState) -> set[IPAddress]:
    """The relay addresses that are there, on whichever device."""
    return {one.address for one in state.ours}
