import socket

import pytest

from nodeagent.components.addresses import Addresses
from tests.components.addresses.node import FOUR, RANGES, SIX, apply, difference, held
from tests.components.dnat.network import Namespace, Server


@pytest.mark.parametrize("address", [FOUR, SIX])
def test_an_address_can_be_bound_and_reached_at_once(
    node: Namespace, component: Addresses, address: str
) -> None:
    """Without a wait for duplicate address detection."""
    apply(component, address)
    with Server(node, address, 443, "relay"):
        assert node.answer(address, 443) == f"relay {address}"


@pytest.mark.usefixtures("node")
def test_an_ipv6_address_is_never_one_moment_late(component: Addresses) -> None:
    """The kernel makes its route after its answer: one connection in fifty got "unreachable"."""
    with socket.create_server(("::", 443), family=socket.AF_INET6) as listener:
        for _ in range(200):
            component.apply(difference(component, SIX))
            with socket.create_connection((SIX, 443), timeout=3):
                listener.accept()[0].close()
            component.apply(difference(component))


@pytest.mark.usefixtures("node")
def test_a_stale_change_is_no_failure(component: Addresses) -> None:
    change = difference(component, FOUR, SIX)
    apply(component, FOUR, SIX)
    assert component.apply(change) == ""
    gone = difference(component)
    for _ in range(2):
        assert component.apply(gone) == ""
    assert held(component.read()) == set()


TO_IPV4 = ["198.51.100.1", "192.0.2.77", "169.254.66.200", "169.254.1.1"]
TO_LINK = ["fe80::77%eth0", "ff02::1%eth0"]
TO_IPV6 = ["2001:db8:9::1", "2001:db8:2::77", "fd68:6169:7270::200", "fd00::1"]


@pytest.mark.parametrize(
    ("addresses", "destinations"),
    [
        (["192.0.2.10/24 dev eth0", "2001:db8:2::10/64 dev eth0 nodad"], TO_IPV4 + TO_LINK + TO_IPV6),
        (["192.0.2.10/32 dev lo", "2001:db8:2::10/128 dev lo"], TO_IPV4 + TO_LINK + TO_IPV6),
        (["fd00:2::10/64 dev eth0 nodad"], TO_IPV4 + TO_LINK + TO_IPV6),
        # Without an IPv6 address of the node's own the kernel has no other choice; see Netlink.add.
        (["192.0.2.10/24 dev eth0"], TO_IPV4 + TO_LINK),
        ([], TO_IPV4 + TO_LINK),
    ],
    ids=["dual stack", "unnumbered uplink", "a ULA alone", "IPv4 alone", "no address"],
)
def test_a_relay_address_is_never_the_source_of_other_traffic(
    node: Namespace, component: Addresses, addresses: list[str], destinations: list[str]
) -> None:
    node.ip("addr flush dev eth0 scope global", *(f"addr add {address}" for address in addresses))
    node.output("ip route replace default dev eth0")
    node.output("ip -6 route replace default dev eth0")
    apply(component, FOUR, SIX)
    sources = {destination: _source(destination) for destination in destinations}
    assert {destination for destination, source in sources.items() if source in (FOUR, SIX)} == set()


@pytest.mark.usefixtures("node")
def test_a_name_of_fifteen_bytes_works() -> None:
    """The label on `lo` is cut to what fits."""
    component = Addresses("a-long-name-123", RANGES)
    apply(component, FOUR)
    assert not apply(component, FOUR)


def _source(destination: str) -> str:
    """What connect() of a UDP socket picks; empty where there is no way."""
    address, _, scope = destination.partition("%")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        index = socket.if_nametoindex(scope) if scope else 0
        try:
            probe.connect((address, 9, 0, index) if family == socket.AF_INET6 else (address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0]).partition("%")[0]
