from ipaddress import ip_address

import pytest

from nodeagent.components.addresses import Addresses, owned
from nodeagent.linux.netlink import KernelAddress
from tests.components.addresses.node import FOUR, RANGES, SIX, apply, clean_up, desired, difference, held
from tests.components.converging import add
from tests.components.dnat.network import Namespace


@pytest.mark.parametrize(
    "command",
    [
        f"addr add {FOUR}/32 dev lo",
        f"addr add {FOUR}/24 dev lo label lo:hairpin0",
        f"addr add {FOUR}/32 dev lo label lo:other",
        f"addr add {FOUR}/32 dev eth0",
        f"addr add {SIX}/128 dev lo",
        f"addr add {SIX}/64 dev lo nodad",
        f"addr add {SIX}/128 dev eth0 nodad noprefixroute preferred_lft 0",
    ],
)
def test_an_address_of_another_program_is_rejected_and_left_unchanged(
    node: Namespace, on_lo: Addresses, command: str
) -> None:
    # Without duplicate address detection, which would end at some time.
    node.ip(f"{command} nodad" if SIX in command else command)
    address, other = (FOUR, "169.254.66.6") if FOUR in command else (SIX, "fd68:6169:7270::6")
    before = node.output("ip -j address")
    assert difference(on_lo, address, other).text.startswith(f"! {address}: it is on ")
    done = add(on_lo, desired(address, other))
    assert done.failure.startswith(f"relay address {address}: it is on ")
    assert "added by another program" in done.failure
    assert held(on_lo.read()) == {ip_address(other)}
    assert other in done.text
    assert f"+ {address}" not in done.text
    clean_up(on_lo)
    assert node.output("ip -j address") == before


def test_addresses_outside_of_the_ranges_are_never_nodeagents(node: Namespace, component: Addresses) -> None:
    """Not even on our own device or with our label."""
    apply(component, FOUR)
    device = next(one.interface for one in component.read().ours)
    node.ip(f"addr add 10.0.0.1/32 dev {device} label {'lo:hairpin0' if device == 'lo' else device}")
    assert [str(one.address) for one in component.read().ours] == [FOUR]


@pytest.mark.parametrize(("flags", "ours"), [(0x2A2, True), (0x80, False), (0x82, False)])
def test_the_flags_of_an_ipv6_address_make_it_nodeagents(flags: int, *, ours: bool) -> None:
    """Not those of a plain address, nor of an administrator's with nodad."""
    found = KernelAddress(ip_address(SIX), 128, "lo", flags=flags)
    assert owned(found, RANGES, "hairpin0", device_is_ours=False).ours == ours


@pytest.mark.parametrize("device", ["lo", "hairpin0"])
def test_without_ipv6_the_ipv4_addresses_are_served(
    node: Namespace, on_lo: Addresses, on_device: Addresses, device: str
) -> None:
    """The IPv6 address alone fails, and says which setting does it."""
    node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
    node.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    component = on_lo if device == "lo" else on_device
    (reason,) = add(component, desired(SIX, FOUR)).failure.splitlines()
    assert reason.startswith(f"relay address {SIX}: ")
    assert f"sysctl net.ipv6.conf.{device}.disable_ipv6" in reason
    assert held(component.read()) == {ip_address(FOUR)}


def test_a_device_that_vanishes_fails_its_addresses_alone(node: Namespace, on_device: Addresses) -> None:
    apply(on_device, FOUR)
    change = difference(on_device, FOUR, SIX)
    node.ip("link del hairpin0")
    failure = on_device.apply(change)
    assert failure.startswith(f"relay address {SIX}: ")
    assert "there is no device hairpin0" in failure
    clean_up(on_device)
