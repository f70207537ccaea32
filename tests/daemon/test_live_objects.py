"""A change in the cluster takes effect on the node at once, and connections through the relay go on."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import pytest

from tests.daemon.connections import InFlight, OpenConnection
from tests.daemon.made_objects import ingress, second_ingress, second_service
from tests.daemon.managed_state import names, read_managed_state, redirects, relay_addresses
from tests.endtoend.second_service import SECOND_IP, SECOND_NAME, SECOND_SERVICE
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.world import World

pytestmark = needs_root

_MOVED_IP = IPv4Address("203.0.113.21")
_LAYER_MIB = 48


@pytest.fixture(scope="module")
def in_flight(world: World, agent: RunningAgent) -> Iterator[InFlight]:
    """Connections that are open from the module's first test to its last, and must end well."""
    assert agent.process.running
    with InFlight(world, world.push_image(_LAYER_MIB)) as flight:
        yield flight
        flight.finish()


def test_an_ingress_comes_changes_and_goes(
    world: World, api: ClusterApi, agent: RunningAgent, in_flight: InFlight
) -> None:
    """Its names get their lines, other names other lines, and the lines go with it."""
    node = world.node1
    before = read_managed_state(node)
    relay = before.names[addresses.SITE]
    for hosts in (["more.example.test", "most.example.test"], ["other.example.test"], []):
        if hosts:
            api.store.apply(ingress("more", hosts))
        else:
            api.store.delete("ingresses", "more", "default")
        expected = {**before.names, **dict.fromkeys(hosts, relay)}
        agent.await_that(lambda wanted=expected: names(node) == wanted, f"the names {hosts}")
        for name in hosts:
            assert node.curl(f"http://{name}/").body.startswith(f"client={addresses.NODE1} ")
        in_flight.check()
    assert read_managed_state(node) == before


def test_a_load_balancer_comes_moves_and_goes(
    world: World, api: ClusterApi, agent: RunningAgent, in_flight: InFlight
) -> None:
    """Address, relay, DNAT and names are added with it, DNAT follows its address, and all is removed with it.

    A connection through it survives its move, and those through the other one survive everything.
    """
    node = world.node1
    before = read_managed_state(node)
    node.kube_proxy.add(SECOND_SERVICE)
    try:
        _tell(api, SECOND_IP)
        relay = _await_redirect(world, agent, SECOND_IP)
        _assert_served(world, relay)
        assert f"server service {SECOND_SERVICE.cluster_ip}:80 " in _relay_configuration(world)
        in_flight.check()
        with OpenConnection(world, SECOND_IP, SECOND_NAME, tls=False) as through_it:
            through_it.check()
            node.kube_proxy.add(replace(SECOND_SERVICE, load_balancer_ips=(_MOVED_IP,)))
            _tell(api, _MOVED_IP)
            assert _await_redirect(world, agent, _MOVED_IP) == relay
            agent.await_that(lambda: f"{SECOND_IP}:80" not in redirects(node), "the old address being let go")
            # The Ingress follows its Service a moment later, and its name with it.
            agent.await_in_sync()
            _assert_served(world, relay, _MOVED_IP)
            through_it.check()
            in_flight.check()

        api.store.delete("services", SECOND_SERVICE.name, SECOND_SERVICE.namespace)
        api.store.delete("ingresses", "web", SECOND_SERVICE.namespace)
        agent.await_that(lambda: read_managed_state(node) == before, "everything of it being gone")
        assert str(SECOND_SERVICE.cluster_ip) not in _relay_configuration(world)
        assert node.curl(f"http://{_MOVED_IP}/").cut
        in_flight.check()
    finally:
        node.kube_proxy.remove(SECOND_SERVICE.key)


def test_ports_and_pod_ranges_come_and_go(
    world: World, api: ClusterApi, agent: RunningAgent, in_flight: InFlight
) -> None:
    """A Service that loses a port and gets it back, and a Node its pods' range: in sync each time."""
    node = world.node1
    service = api.store.get("services", "ingress-nginx-controller", "ingress-nginx")
    ports = service["spec"]["ports"]
    lb = addresses.LOAD_BALANCER_IP
    place = ("services", "ingress-nginx-controller", "ingress-nginx")
    agent.await_that(lambda: f"{lb}:8443" in redirects(node), "all ports")

    api.store.patch(*place, {"spec": {"ports": ports[:2]}})
    agent.await_that(lambda: sorted(redirects(node)) == [f"{lb}:443", f"{lb}:80"], "a port less")
    in_flight.check()
    api.store.patch(*place, {"spec": {"ports": ports}})
    agent.await_that(lambda: f"{lb}:8443" in redirects(node), "the port again")

    api.store.patch("nodes", "node1", "", {"spec": {"podCIDR": None, "podCIDRs": None}})
    agent.await_that(lambda: world.pod1.curl(f"http://{lb}/").cut, "pods being left out")
    api.store.patch("nodes", "node1", "", {"spec": {"podCIDRs": [str(addresses.POD_CIDR1)]}})
    agent.await_that(lambda: world.pod1.curl(f"http://{lb}/").ok, "pods being served again")
    in_flight.check()
    agent.await_in_sync()


def _tell(api: ClusterApi, address: IPv4Address) -> None:
    api.store.apply(second_service(address))
    api.store.apply(second_ingress(address))


def _await_redirect(world: World, agent: RunningAgent, address: IPv4Address) -> str:
    """Wait for the DNAT to the second relay address and for its name; returns that address."""
    node = world.node1
    agent.await_that(
        lambda: f"{address}:80" in redirects(node) and SECOND_NAME in names(node), f"{address} redirected"
    )
    relay = redirects(node)[f"{address}:80"].removesuffix(":80")
    assert relay in relay_addresses(node)
    return relay


def _assert_served(world: World, relay: str, address: IPv4Address = SECOND_IP) -> None:
    node = world.node1
    assert names(node)[SECOND_NAME] == relay
    assert node.curl(f"http://{SECOND_NAME}/").body.startswith(f"client={addresses.NODE1} ")
    for host, client in ((node, addresses.NODE1), (world.pod1, addresses.POD1)):
        answer = host.curl(f"http://{SECOND_NAME}/", resolve=address)
        assert answer.body.startswith(f"client={client} "), answer


def _relay_configuration(world: World) -> str:
    return world.node1.run(["cat", "/run/nodeagent/haproxy.cfg"]).stdout
