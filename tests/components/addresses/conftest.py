"""A node's namespace, with a link to a neighbour and a way out, and the component in it."""

import pytest

from nodeagent.components.addresses import Addresses
from tests.components.addresses.node import RANGES
from tests.components.dnat.network import Namespace
from tests.testbed.waiting import wait_until


@pytest.fixture
def node(node: Namespace) -> Namespace:
    node.ip(
        "link add eth0 type veth peer name eth0peer",
        "addr add 192.0.2.10/24 dev eth0",
        "addr add 2001:db8:2::10/64 dev eth0 nodad",
        # No link-local addresses, which the kernel would add some time later, in the midst of a comparison.
        "link set eth0 addrgenmode none",
        "link set eth0peer addrgenmode none",
        "link set eth0 up",
        "link set eth0peer up",
        "route add default via 192.0.2.1",
        "route add default via 2001:db8:2::1",
    )
    wait_until(lambda: node.output("ip -j link").count('"operstate":"UP"') == 2, "the link to be up")
    return node


@pytest.fixture
def on_lo() -> Addresses:
    """The component as the agent uses it: this kernel has no dummy device, so its addresses go on `lo`."""
    return Addresses("hairpin0", RANGES)


@pytest.fixture
def on_device() -> Addresses:
    """The component with a kind of device that this kernel can make, and that is as simple as a dummy."""
    return Addresses("hairpin0", RANGES, kind="ifb")


@pytest.fixture(params=["on_lo", "on_device"])
def component(request: pytest.FixtureRequest) -> Addresses:
    made: Addresses = request.getfixturevalue(request.param)
    return made
