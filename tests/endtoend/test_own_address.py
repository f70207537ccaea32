"""A load balancer whose EndpointSlice names its own relay address: HAProxy must not connect to itself.

The API server accepts an IPv6 relay address there (169.254.0.0/16 it rejects), so the attack has this family.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv6Address, ip_address

import pytest

from tests.endtoend.asking import NAMED, assert_served
from tests.endtoend.matrix import Combination
from tests.endtoend.second_service import SECOND_IP_6, SECOND_SERVICE, write_manifest
from tests.testbed.addresses import bracketed
from tests.testbed.agent import RUN_DIRECTORY, Agent
from tests.testbed.world import World

COMBINATIONS = (
    Combination("nftables", "dual", "nftables"),
    Combination("iptables", 6, "iptables-legacy"),
)
pytestmark = pytest.mark.parametrize("combination", COMBINATIONS, ids=str, indirect=True, scope="module")

_INFO = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"show info\\n")
print(connection.makefile().read())
"""
_CHECKS = 80
"""Ten a second at most while a server is down; one listener's are one each second."""


def test_haproxy_does_not_connect_to_itself(world: World, agent: Agent) -> None:
    with _own_address(world, agent):
        before = _connections(agent)
        page = f"http://{bracketed(SECOND_IP_6)}/"
        for host in (world.node1, world.pod1):
            assert not host.curl(page, timeout=4).ok
        # From another machine, by its NodePort: past the guard, and as the node, it would be.
        node_port = f"http://{bracketed(world.address(world.node1, 6))}:{SECOND_SERVICE.ports[0].node_port}/"
        assert not world.client.curl(node_port, timeout=3).ok
        assert _connections(agent) - before <= _CHECKS
        assert_served(world, world.node1, *NAMED)
        assert_served(world, world.pod1, *NAMED)


@contextmanager
def _own_address(world: World, agent: Agent) -> Iterator[None]:
    """A second load balancer, relayed, and kube-proxy leads its ClusterIP to its own relay address."""
    write_manifest(agent, world.families)
    world.node1.kube_proxy.add(SECOND_SERVICE)
    try:
        answer = agent.apply()
        assert answer.exit_code == 0, answer
        found = agent.status("-o", "json").document["loadBalancers"]
        (second,) = [each for each in found if each["service"]["name"] == SECOND_SERVICE.name]
        (own,) = [one for one in map(ip_address, second["relayAddresses"]) if isinstance(one, IPv6Address)]
        world.node1.kube_proxy.add(replace(SECOND_SERVICE, endpoints=(own,)))
        yield
    finally:
        world.node1.kube_proxy.remove(SECOND_SERVICE.key)


def _connections(agent: Agent) -> int:
    """How many connections HAProxy has had, its own to itself among them."""
    done = agent.host.run(["/usr/bin/python3", "-c", _INFO, str(RUN_DIRECTORY / "relay.sock")])
    found = re.search(r"^CumConns: (\d+)$", done.stdout, re.MULTILINE)
    assert found
    return int(found[1])
