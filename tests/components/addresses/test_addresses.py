import json
import socket
import subprocess
from ipaddress import ip_address
from typing import Any

import pytest

from nodeagent.components.addresses import Addresses
from tests.cases import cases_of
from tests.components.addresses.node import FOUR, RANGES, SIX, apply, clean_up, desired, difference, held
from tests.components.converging import add
from tests.components.dnat.network import Namespace, Server

CASES = cases_of(__file__, "cases.yaml")
EACH = pytest.mark.parametrize("address", [FOUR, SIX])


def test_without_such_a_device_in_the_kernel_lo_serves(node: Namespace, on_lo: Addresses) -> None:
    """EOPNOTSUPP, "Unknown device type", from the real kernel; a dry run says so beforehand."""
    _skip_if_it_can_make_dummies(node)
    change = apply(on_lo, FOUR, SIX)
    assert change.how == "on a new device hairpin0, or on lo if the kernel can't make it"
    assert "hairpin0" not in change.text
    assert {one.interface for one in on_lo.read().ours} == {"lo"}
    assert on_lo.read().status == "absent"
    labels = [one.get("label") for one in _links(node)["lo"]["addr_info"] if one["local"] == FOUR]
    assert labels == ["lo:hairpin0"]


def test_the_device_is_made_marked_and_up_and_set_up_again(node: Namespace, on_device: Addresses) -> None:
    """With the IPv6 addresses that the kernel takes away with it when it is set down."""
    apply(on_device, FOUR, SIX)
    link = _links(node)["hairpin0"]
    assert link["ifalias"] == "nodeagent"
    assert {"UP", "NOARP"} <= set(link["flags"])
    assert {one["local"] for one in link["addr_info"]} >= {FOUR, SIX}
    state = on_device.read()
    assert (state.status, state.kind, state.made_by_us) == ("up", "ifb", True)
    node.ip("link set hairpin0 down")
    change = apply(on_device, FOUR, SIX)
    assert change.text.startswith("~ device hairpin0: set up")
    assert [one.address for one in change.add] == [ip_address(SIX)]
    assert not apply(on_device, FOUR, SIX)
    clean_up(on_device)
    assert on_device.read().status == "absent"


@pytest.mark.parametrize("commands", CASES["devices of others"])
def test_a_device_of_others_is_rejected(node: Namespace, on_device: Addresses, commands: list[str]) -> None:
    """Each address says why; the device, even one with such an address, stays as it is."""
    node.ip(*commands, "link set hairpin0 up", "addr add 169.254.66.9/32 dev hairpin0")
    before = _settled(node)
    assert not difference(on_device, FOUR, SIX)
    done = add(on_device, desired(FOUR, SIX))
    assert done.text == ""
    for address, line in zip((FOUR, SIX), done.failure.splitlines(), strict=True):
        assert line.startswith(f"relay address {address}: ")
        assert "relay.interface" in line
    clean_up(on_device)
    assert _settled(node) == before


def test_a_device_provided_without_an_alias_is_used_and_kept(node: Namespace, on_device: Addresses) -> None:
    node.ip("link add hairpin0 type ifb")
    apply(on_device, FOUR)
    assert [one.interface for one in on_device.read().ours] == ["hairpin0"]
    clean_up(on_device)
    assert on_device.read().status == "up"
    assert not on_device.read().ours


@EACH
def test_addresses_move_from_lo_to_a_device_that_came_later(
    node: Namespace, on_lo: Addresses, on_device: Addresses, address: str
) -> None:
    """An open connection lives on, and there is no moment without the address."""
    _skip_if_it_can_make_dummies(node)
    apply(on_lo, address)
    node.ip("link add hairpin0 type ifb")
    change = on_device.diff(on_device.read(), desired(address), keep=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        Server(node, address, 443, "relay"),
        socket.create_server((address, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2], timeout=3) as client,
        listener.accept()[0] as server,
    ):
        on_device.apply(change)
        assert {one.interface for one in on_device.read().ours} == {"lo", "hairpin0"}
        assert node.answer(address, 443) == f"relay {address}"
        on_device.apply(difference(on_device, address))
        assert {one.interface for one in on_device.read().ours} == {"hairpin0"}
        assert node.answer(address, 443) == f"relay {address}"
        client.sendall(b"still here")
        server.settimeout(3)
        assert server.recv(100) == b"still here"
    assert not apply(on_device, address)


@pytest.mark.parametrize("command", CASES["addresses of others"])
def test_an_address_of_others_is_rejected_and_stays(node: Namespace, on_lo: Addresses, command: str) -> None:
    node.ip(command)
    address, other = (FOUR, "169.254.66.6") if FOUR in command else (SIX, "fd68:6169:7270::6")
    before = node.output("ip -j address")
    assert difference(on_lo, address, other).text.startswith(f"! {address}: it is on ")
    done = add(on_lo, desired(address, other))
    assert done.failure.startswith(f"relay address {address}: it is on ")
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


def test_without_ipv6_the_ipv4_addresses_are_served(node: Namespace, component: Addresses) -> None:
    """The IPv6 address alone fails, and says which setting does it."""
    node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
    node.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    (reason,) = add(component, desired(SIX, FOUR)).failure.splitlines()
    assert reason.startswith(f"relay address {SIX}: ")
    (held_one,) = component.read().ours
    assert f"net.ipv6.conf.{held_one.interface}.disable_ipv6" in reason
    assert held_one.address == ip_address(FOUR)


def test_a_device_that_vanishes_fails_its_addresses_alone(node: Namespace, on_device: Addresses) -> None:
    apply(on_device, FOUR)
    change = difference(on_device, FOUR, SIX)
    node.ip("link del hairpin0")
    failure = on_device.apply(change)
    assert failure.startswith(f"relay address {SIX}: ")
    assert "no device hairpin0" in failure
    clean_up(on_device)


@EACH
@pytest.mark.usefixtures("node")
def test_an_address_can_be_bound_and_reached_at_once(component: Addresses, address: str) -> None:
    """Of IPv6, the kernel makes the route after its answer: one connection in fifty got "unreachable"."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for _ in range(100):
        component.apply(difference(component, address))
        with (
            socket.create_server((address, 443), family=family) as listener,
            socket.create_connection((address, 443), timeout=3),
        ):
            listener.accept()[0].close()
        component.apply(difference(component))


def test_a_stale_change_is_no_failure(node: Namespace, component: Addresses) -> None:
    change = difference(component, FOUR, SIX)
    apply(component, FOUR, SIX)
    assert component.apply(change) == ""
    gone = difference(component)
    for _ in range(2):
        assert component.apply(gone) == ""
    assert held(component.read()) == set()


TO_IPV4 = ["198.51.100.1", "192.0.2.77", "169.254.66.200", "169.254.1.1", "fe80::77%eth0", "ff02::1%eth0"]
TO_IPV6 = ["2001:db8:9::1", "2001:db8:2::77", "fd68:6169:7270::200", "fd00::1"]


@pytest.mark.parametrize(("addresses", "both"), CASES["sources"].values(), ids=CASES["sources"])
def test_a_relay_address_is_never_the_source_of_other_traffic(
    node: Namespace, component: Addresses, addresses: list[str], both: bool
) -> None:
    node.ip("addr flush dev eth0 scope global", *(f"addr add {address}" for address in addresses))
    node.output("ip route replace default dev eth0")
    node.output("ip -6 route replace default dev eth0")
    apply(component, FOUR, SIX)
    assert [to for to in TO_IPV4 + TO_IPV6 * both if _source(to) in (FOUR, SIX)] == []


def test_a_name_of_fifteen_bytes_works(node: Namespace) -> None:
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


def _links(node: Namespace) -> dict[str, dict[str, Any]]:
    return {link["ifname"]: link for link in json.loads(node.output("ip -j -d address"))}


def _settled(node: Namespace) -> list[tuple[Any, ...]]:
    """All that nodeagent could change, without what the kernel settles later."""
    return [
        (
            link["ifindex"],
            name,
            link.get("ifalias"),
            "UP" in link["flags"],
            [(one["local"], one["prefixlen"]) for one in link["addr_info"] if one["scope"] == "global"],
        )
        for name, link in _links(node).items()
    ]


def _skip_if_it_can_make_dummies(node: Namespace) -> None:
    try:
        node.output("ip link add probe0 type dummy")
    except subprocess.CalledProcessError:
        return
    pytest.skip("this kernel has the dummy device")
