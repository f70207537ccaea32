import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import pytest

from nodeagent.components.addresses import Addresses
from tests.components.addresses.node import FOUR, SIX, apply, clean_up, desired, difference
from tests.components.converging import add
from tests.components.dnat.network import Namespace, Server


def test_without_such_a_device_in_the_kernel_lo_serves(node: Namespace, on_lo: Addresses) -> None:
    """EOPNOTSUPP, "Unknown device type", from the real kernel; a dry run says so beforehand."""
    if _can_make(node, "dummy"):
        pytest.skip("this kernel has the dummy device")
    change = apply(on_lo, FOUR, SIX)
    assert change.how == "on a new device hairpin0, or on lo if the kernel can't make it"
    assert "hairpin0" not in change.text
    assert {one.interface for one in on_lo.read().ours} == {"lo"}
    assert on_lo.read().status == "absent"
    labels = [one.get("label") for one in _link(node, "lo")["addr_info"] if one["local"] == FOUR]
    assert labels == ["lo:hairpin0"]


def test_the_device_is_made_marked_and_up(node: Namespace, on_device: Addresses) -> None:
    apply(on_device, FOUR, SIX)
    link = _link(node, "hairpin0")
    assert link["ifalias"] == "nodeagent"
    assert {"UP", "NOARP"} <= set(link["flags"])
    assert {one["local"] for one in link["addr_info"]} >= {FOUR, SIX}
    state = on_device.read()
    assert (state.status, state.kind, state.made_by_us) == ("up", "ifb", True)
    clean_up(on_device)
    assert on_device.read().status == "absent"


def test_a_device_set_down_is_set_up_again(node: Namespace, on_device: Addresses) -> None:
    """With the IPv6 addresses that the kernel took away with it."""
    apply(on_device, FOUR, SIX)
    node.ip("link set hairpin0 down")
    change = apply(on_device, FOUR, SIX)
    assert change.text.startswith("~ device hairpin0: set up")
    assert [one.address for one in change.add] == [ip_address(SIX)]
    assert not apply(on_device, FOUR, SIX)


@pytest.mark.parametrize(
    "commands",
    [
        ["link add hairpin0 type bridge"],
        ["link add hairpin0 type veth peer name other"],
        ["link add hairpin0 type ifb", "link set hairpin0 alias somebody"],
    ],
)
def test_a_device_of_another_program_is_rejected(
    node: Namespace, on_device: Addresses, commands: list[str]
) -> None:
    """Each address says why; the device, even one with such an address, stays as it is."""
    node.ip(*commands, "link set hairpin0 up", "addr add 169.254.66.9/32 dev hairpin0")
    before = _links(node)
    assert not difference(on_device, FOUR, SIX)
    done = add(on_device, desired(FOUR, SIX))
    assert done.text == ""
    for address, line in zip((FOUR, SIX), done.failure.splitlines(), strict=True):
        assert line.startswith(f"relay address {address}: ")
        assert "set relay.interface to another name" in line
    clean_up(on_device)
    assert _links(node) == before


def test_a_device_provided_without_an_alias_is_used_and_kept(node: Namespace, on_device: Addresses) -> None:
    node.ip("link add hairpin0 type ifb")
    apply(on_device, FOUR)
    assert [one.interface for one in on_device.read().ours] == ["hairpin0"]
    clean_up(on_device)
    assert on_device.read().status == "up"
    assert not on_device.read().ours


@pytest.mark.parametrize("address", [FOUR, SIX])
def test_addresses_move_from_lo_to_a_device_that_came_later(
    node: Namespace, on_lo: Addresses, on_device: Addresses, address: str
) -> None:
    """An open connection lives on, and there is no moment without the address."""
    if _can_make(node, "dummy"):
        pytest.skip("this kernel has the dummy device")
    apply(on_lo, address)
    node.ip("link add hairpin0 type ifb")
    change = on_device.diff(on_device.read(), desired(address), keep=True)
    with Server(node, address, 443, "relay"), _echo_pair(address) as (client, server):
        on_device.apply(change)
        assert {one.interface for one in on_device.read().ours} == {"lo", "hairpin0"}
        assert node.answer(address, 443) == f"relay {address}"
        on_device.apply(difference(on_device, address))
        assert {one.interface for one in on_device.read().ours} == {"hairpin0"}
        assert node.answer(address, 443) == f"relay {address}"
        client.sendall(b"still here")
        assert server.recv(100) == b"still here"
    assert not apply(on_device, address)


@contextmanager
def _echo_pair(address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection open on `address`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2], timeout=3) as client,
        listener.accept()[0] as server,
    ):
        server.settimeout(3)
        yield client, server


def _link(node: Namespace, name: str) -> dict[str, Any]:
    (link,) = json.loads(node.output(f"ip -j -d address show dev {name}"))
    return dict(link)


def _links(node: Namespace) -> list[tuple[Any, ...]]:
    """All that nodeagent could change, without what the kernel settles later."""
    return [
        (
            link["ifindex"],
            link["ifname"],
            link.get("ifalias"),
            "UP" in link["flags"],
            [(one["local"], one["prefixlen"]) for one in link["addr_info"] if one["scope"] == "global"],
        )
        for link in json.loads(node.output("ip -j -d address"))
    ]


def _can_make(node: Namespace, kind: str) -> bool:
    try:
        node.output(f"ip link add probe0 type {kind}")
    except subprocess.CalledProcessError:
        return False
    return True
