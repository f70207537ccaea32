"""With nodeagent, node and pods reach what the load balancer serves, under their own addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.endtoend.configuration import configure
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.testbed.agent import Agent
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

pytestmark = needs_root

_NAMED = (f"http://{addresses.SITE}/", f"https://{addresses.SITE}/", f"https://{addresses.SITE}:8443/")
# No Ingress names these: they are covered by DNAT or not at all.
_UNNAMED = (f"http://{addresses.LOAD_BALANCER_IP}/", f"https://{addresses.ANOTHER}:8443/")

_Sections = dict[str, dict[str, object]]
_BOTH: _Sections = {}
_DNAT: _Sections = {"hosts": {"enabled": False}}
_HOSTS: _Sections = {"dnat": {"backend": "none"}}
_LAYER_MIB = 256


@pytest.mark.parametrize(
    "sections", [_BOTH, _DNAT, _HOSTS], ids=["dnat and hosts", "dnat alone", "hosts alone"]
)
def test_the_node_and_its_pods_are_served(
    world: World, agent: Agent, sections: Mapping[str, Mapping[str, object]]
) -> None:
    _apply(agent, sections)
    for url in _NAMED:
        _assert_served(world.node1, url, addresses.NODE1)
    for url in _UNNAMED if sections is not _HOSTS else ():
        _assert_served(world.node1, url, addresses.NODE1)
    for url in _NAMED + _UNNAMED:
        if sections is not _HOSTS:
            _assert_served(world.pod1, url, addresses.POD1)
        else:
            # The node's hosts file is not theirs.
            assert world.pod1.curl(url).cut
    for host in (world.node2, world.pod2):
        assert host.curl(_NAMED[0]).cut


def test_a_large_layer_is_pulled_whole(world: World, agent: Agent) -> None:
    image = world.push_image(_LAYER_MIB)
    _apply(agent, _BOTH)
    pulled = world.node1.pull(image)
    assert pulled.ok, pulled.stderr
    world.node1.containers.remove(image)


def test_traffic_from_outside_is_not_touched(world: World, agent: Agent) -> None:
    _apply(agent, _BOTH)
    with world.client_through(world.node1):
        # It bears its own PROXY line, or none: either way nodeagent adds none.
        for url in _NAMED:
            answer = world.client.curl(url, proxy_protocol=True)
            assert answer.ok, answer
            assert answer.body.startswith(f"client={addresses.CLIENT} ")
            assert world.client.curl(url).cut


def test_kube_proxy_writing_its_rules_anew_changes_nothing(world: World, agent: Agent) -> None:
    _apply(agent, _DNAT)
    world.node1.kube_proxy.sync()
    _assert_served(world.node1, _NAMED[0], addresses.NODE1)
    _assert_served(world.pod1, _NAMED[0], addresses.POD1)
    assert agent.status().exit_code == 0


def _apply(agent: Agent, sections: Mapping[str, Mapping[str, object]]) -> None:
    configure(agent, **sections)
    answer = agent.apply()
    assert answer.exit_code == 0, answer


def _assert_served(host: Host, url: str, address: addresses.Address) -> None:
    answer = host.curl(url)
    assert answer.ok, (url, answer)
    assert answer.body.startswith(f"client={address} "), (url, answer)
