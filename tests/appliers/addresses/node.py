"""What the tests of this folder share: ranges, addresses, one whole pass."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from nodeagent.appliers.addresses.applier import AddressApplier
from nodeagent.appliers.addresses.state import AddressChange
from nodeagent.model.desired import RelayAddress
from nodeagent.model.objects import ObjectRef

RANGES = (IPv4Network("169.254.66.0/24"), IPv6Network("fd68:6169:7270::/112"))
FOUR, SIX = "169.254.66.5", "fd68:6169:7270::5"


def relay(*addresses: str) -> tuple[RelayAddress, ...]:
    """Relay addresses, all for one Service."""
    owner = ObjectRef("Service", "ingress-nginx", "controller")
    return tuple(RelayAddress(ip_address(address), owner) for address in addresses)


def apply(applier: AddressApplier, *addresses: str) -> AddressChange:
    """One whole pass, in which nothing may fail; returns the change."""
    change = applier.change(applier.read(), relay(*addresses))
    assert not applier.grow(change).failures
    result = applier.shrink(change)
    assert not result.failures
    assert result.standing == {ip_address(address) for address in addresses}
    return change
