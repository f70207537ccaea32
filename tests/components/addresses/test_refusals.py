from ipaddress import ip_address

import pytest

from nodeagent.components.addresses.component import Addresses
from nodeagent.components.component import PartlyAppliedError
from tests.components.addresses.node import FOUR, SIX, apply, clean_up, difference, held
from tests.components.dnat.network import Namespace, become_nobody
from tests.isolation import isolated


@pytest.mark.parametrize("device", ["lo", "hairpin0"])
def test_without_ipv6_the_ipv4_addresses_are_served(
    node: Namespace, on_lo: Addresses, on_device: Addresses, device: str
) -> None:
    """The IPv6 address alone fails, and says which setting does it."""
    node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
    node.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    component = on_lo if device == "lo" else on_device
    with pytest.raises(PartlyAppliedError) as caught:
        difference(component, SIX, FOUR).grow.apply()
    (reason,) = str(caught.value).splitlines()
    assert reason.startswith(f"relay address {SIX}: ")
    assert f"sysctl net.ipv6.conf.{device}.disable_ipv6" in reason
    assert held(component.read()) == {ip_address(FOUR)}


def test_a_device_that_vanishes_fails_its_addresses_alone(node: Namespace, on_device: Addresses) -> None:
    """Between the reading and the change."""
    apply(on_device, FOUR)
    change = difference(on_device, FOUR, SIX)
    node.ip("link del hairpin0")
    with pytest.raises(PartlyAppliedError, match=f"{SIX}: .*there is no device hairpin0"):
        change.grow.apply()
    clean_up(on_device)


@isolated
def test_an_ordinary_user_may_read_and_learns_what_is_needed(component: Addresses) -> None:
    """The dry run; and for each address."""
    apply(component, FOUR)
    before = component.read()
    become_nobody()
    assert component.read() == before
    with pytest.raises(PartlyAppliedError, match="it needs root or CAP_NET_ADMIN"):
        difference(component, FOUR, SIX).grow.apply()
