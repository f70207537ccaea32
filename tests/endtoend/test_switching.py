"""A node whose configuration names another backend: no client notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.connections import requests
from tests.endtoend.configuration import configure
from tests.endtoend.matrix import Combination
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.testbed.agent import Agent
    from tests.testbed.world import World

# Legacy rules of kube-proxy: before them either backend has its place.
pytestmark = [
    needs_root,
    pytest.mark.parametrize(
        "combination", [Combination("nftables", 4, "iptables-legacy")], ids=str, indirect=True, scope="module"
    ),
]


def test_no_connection_of_a_pod_is_cut_by_a_change_of_backend(world: World, agent: Agent) -> None:
    """The whole pass, and not the backend's part alone: the old redirects go when the new ones come."""
    assert agent.apply().exit_code == 0
    with requests(world.pod1) as made:
        for backend in ("iptables", "nftables", "iptables"):
            configure(agent, dnat={"backend": backend})
            answer = agent.apply()
            assert answer.exit_code == 0, answer
            made.await_more()
        assert made.failures == []
