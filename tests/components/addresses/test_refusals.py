import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import TypeVar

import pytest

from nodeagent.components.addresses.component import Addresses
from nodeagent.components.component import PartlyAppliedError
from tests.components.addresses.node import FOUR, RANGES, SIX, apply, clean_up, difference, held
from tests.components.dnat.network import Namespace

NOBODY = 65534
T = TypeVar("T")


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


def test_an_ordinary_user_may_read(node: Namespace, component: Addresses) -> None:
    """The dry run."""
    apply(component, FOUR, SIX)
    node.ip("addr add 10.0.0.1/8 dev eth0")
    assert _as_nobody(component.read) == component.read()


@pytest.mark.usefixtures("node")
def test_an_ordinary_user_learns_what_is_needed(on_device: Addresses) -> None:
    """For each address."""
    assert "it needs root or CAP_NET_ADMIN" in _as_nobody(lambda: _failure(on_device))


def test_pyroute2_is_not_imported_before_it_is_needed() -> None:
    """It costs 13 MB."""
    code = "import sys, nodeagent.components.addresses.component; sys.exit('pyroute2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ranges_are_those_of_the_configuration(node: Namespace) -> None:
    """Addresses of a range that was configured before belong to no one."""
    apply(Addresses("hairpin0", RANGES), FOUR)
    other = Addresses("hairpin0", (type(RANGES[0])("169.254.67.0/24"), RANGES[1]))
    assert other.read().ours == ()
    assert FOUR in node.output("ip address")


def _failure(addresses: Addresses) -> str:
    try:
        difference(addresses, FOUR).grow.apply()
    except PartlyAppliedError as error:
        return str(error)
    return "nothing failed"


def _as_nobody(call: Callable[[], T]) -> T:
    """Run `call` in a child process without privileges."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(writer, pickle.dumps(call()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        content = file.read()
    assert os.waitpid(child, 0)[1] == 0
    result: T = pickle.loads(content)  # noqa: S301 - our own child's
    return result
