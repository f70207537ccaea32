import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.endtoend.matrix import BACKENDS, Backend
from tests.endtoend.trying import NAMED, agent_on, assert_served, by_address, leaving_no_trace, unnamed
from tests.root import needs_root
from tests.testbed import addresses
from tests.testbed.addresses import Address, Family, Stack
from tests.testbed.agent import Agent
from tests.testbed.node_state import read_state
from tests.testbed.world import World, write_manifests

pytestmark = [needs_root, pytest.mark.parametrize("backend", BACKENDS)]

_SWITCHED_OFF = "IPv6 is switched off on this node (sysctl net.ipv6.conf."
_RELAYS: dict[Family, str] = {4: "169.254.66.", 6: "fd68:6169:7270::"}


def _told_of_both(
    world: World, directory: Path, backend: Backend, cluster_ips: tuple[Address, ...] | None = None
) -> Agent:
    made = agent_on(world.node1, world.manifests, directory, dnat={"backend": backend})
    write_manifests(made.manifests, (4, 6), cluster_ips)
    # What the cluster says of its nodes is what they support.
    shutil.copy(world.manifests / "nodes.yaml", made.manifests)
    return made


@pytest.mark.parametrize(
    ("stack", "left_alone", "why"),
    [
        (4, addresses.LOAD_BALANCER_IP_6, _SWITCHED_OFF),
        (6, addresses.LOAD_BALANCER_IP, "this node has no IPv4 address of its own"),
    ],
    ids=["IPv6 switched off", "no IPv4 address"],
)
def test_a_node_of_one_family_is_served_in_it_and_the_other_reported_once(
    tmp_path: Path, backend: Backend, stack: Stack, left_alone: Address, why: str
) -> None:
    with World(family=stack) as world:
        (family,) = world.families
        own = (addresses.INGRESS_CLUSTER_IP, addresses.INGRESS_CLUSTER_IP_6)[family == 6]
        with leaving_no_trace(_told_of_both(world, tmp_path, backend, (own,))) as agent:
            assert agent.apply().exit_code == 0
            assert_served(world, world.node1, *NAMED, *unnamed(world))
            assert_served(world, world.pod1, *NAMED)
            status = agent.status()
            assert status.exit_code == 0, status
            assert status.words.count(f"{left_alone}: not relayed: {why}") == 1
            assert _RELAYS[6 if family == 4 else 4] not in _all_that_stands(agent)


def test_ipv6_switched_off_later_is_drift_that_heals(tmp_path: Path, backend: Backend) -> None:
    """The kernel takes the addresses; what pointed at them is removed, IPv4 stays."""
    with World(family="dual") as world:
        agent = _told_of_both(world, tmp_path, backend)
        assert agent.apply().exit_code == 0
        assert_served(world, world.node1, NAMED[0], *by_address(world))
        world.node1.run(["sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"])
        status = agent.status()
        assert status.exit_code == 2, status
        assert f"{addresses.LOAD_BALANCER_IP_6}: not relayed: {_SWITCHED_OFF}" in status.words
        assert agent.apply().exit_code == 0
        assert _RELAYS[6] not in _all_that_stands(agent)
        page = world.node1.curl(NAMED[1])
        assert page.body.startswith(f"client={addresses.NODE1} "), page
        assert agent.status().exit_code == 0
        assert agent.cleanup().exit_code == 0
        assert _RELAYS[4] not in _all_that_stands(agent)


@pytest.mark.parametrize("family", [4, 6], ids=["IPv4 alone", "IPv6 alone"])
def test_a_cluster_ip_of_one_family_serves_both_and_the_clients_address_arrives(
    tmp_path: Path, backend: Backend, family: Family
) -> None:
    """The PROXY header names the client in its own family, over a connection of the other."""
    own = (addresses.INGRESS_CLUSTER_IP, addresses.INGRESS_CLUSTER_IP_6)[family == 6]
    with World(family="dual") as world:
        for node in world.nodes:
            node.kube_proxy.add(replace(world.service, cluster_ips=(own,)))
        with leaving_no_trace(_told_of_both(world, tmp_path, backend, (own,))) as agent:
            assert agent.apply().exit_code == 0
            for host in (world.node1, world.pod1):
                # In each family, by name and by address.
                assert_served(world, host, *NAMED, *unnamed(world))


def _all_that_stands(agent: Agent) -> str:
    state = read_state(agent.host)
    return state.ruleset + state.iptables + state.addresses + state.hosts[0].decode()
