"""What the kernel reports of the relay addresses: at once, so that nothing is waited for."""

import errno
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from nodeagent.components.addresses import Addresses, AddressWatch
from tests.components.addresses.node import FOUR, SIX, apply
from tests.components.dnat.network import Namespace


@pytest.fixture
def watch(node: Namespace, on_device: Addresses) -> Iterator[AddressWatch]:
    """It begins when the addresses are there."""
    apply(on_device, FOUR, SIX)
    with closing(on_device.watch()) as made:
        yield made


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ([f"addr del {FOUR}/32 dev hairpin0"], f"{FOUR} was removed"),
        ([f"addr del {SIX}/128 dev hairpin0"], f"{SIX} was removed"),
        (["link set hairpin0 down"], "the device hairpin0 was changed"),
        (["link del hairpin0"], "the device hairpin0 was changed"),
        (["link set hairpin0 down", "link set hairpin0 name mine"], "the device hairpin0 was changed"),
        (["link set hairpin0 alias somebody"], "the device hairpin0 was changed"),
        # Another program's counts, too: its removal may serve a load balancer.
        (["addr add 169.254.66.77/32 dev lo"], "169.254.66.77 was added"),
        ([f"addr add {FOUR}/32 dev eth0"], f"{FOUR} was added"),
    ],
)
def test_a_change_of_the_addresses_or_their_device_is_seen(
    node: Namespace, watch: AddressWatch, commands: list[str], told: str
) -> None:
    node.ip(*commands)
    assert told in watch.drain().split("; ")
    assert watch.drain() == ""


def test_a_device_that_comes_later_is_seen(node: Namespace, on_device: Addresses) -> None:
    with closing(on_device.watch()) as watch:
        node.ip("link add hairpin0 type ifb")
        assert watch.drain() == "the device hairpin0 was changed"
        node.ip("link set hairpin0 name mine")
        assert watch.drain() == "the device hairpin0 was changed"
        node.ip("link set mine up")
        assert watch.drain() == "the device hairpin0 was changed"


def test_pods_that_start_and_end_are_not(node: Namespace, watch: AddressWatch) -> None:
    node.ip("link add bridge type bridge", "addr add 169.254.67.1/24 dev lo")
    for number in range(20):
        node.ip(
            f"link add veth{number} type veth peer name peer{number}",
            f"link set veth{number} up",
            f"addr add 10.244.{number}.1/24 dev veth{number}",
            f"link set veth{number} master bridge",
            f"link set veth{number} nomaster",
            f"link del veth{number}",
        )
    assert watch.drain() == ""


def test_lost_notifications_are_an_error(node: Namespace, watch: AddressWatch) -> None:
    source = watch._source  # noqa: SLF001 - at its full size, it takes too long to fill
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    node.ip(*(f"addr add 10.1.1.{number}/32 dev lo" for number in range(1, 100)))
    with pytest.raises(OSError, match="No buffer space") as caught:
        watch.drain()
    assert caught.value.errno == errno.ENOBUFS
