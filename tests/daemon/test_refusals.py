"""A denial by the API server tells an agent nothing about the cluster, and changes nothing on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apiserver import Rule, faults, objects
from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import hosts_inode, names, read_managed_state, table
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.testbed.world import World

pytestmark = needs_root

_INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


def _unauthorized(api: ClusterApi) -> None:
    """The credentials have expired: everything is refused."""
    api.faults.add(faults.Answer(401), times=None)


def _forbidden(api: ClusterApi) -> None:
    """Watches are allowed, but stream no lists, and say that a new list is due; lists are not."""
    api.options.watch_list = False
    api.access.allow_only([Rule(["*"], ["*"], ["watch"])])
    api.store.create(objects.config_map("anything"))
    api.compact()


@pytest.mark.parametrize(("refuse", "verb"), [(_unauthorized, "watch"), (_forbidden, "list")])
def test_a_refusal_is_not_read_as_no_objects(
    world: World, api: ClusterApi, agents: Agents, refuse: Callable[[ClusterApi], None], verb: str
) -> None:
    """401 and 403, for watches and for lists, withdraw nothing; log, metrics and /readyz report them."""
    node = world.node1
    agent = agents.start_ready()
    before = (read_managed_state(node), table(node), hosts_inode(node))
    with api.away():
        refuse(api)
        api.traffic.forget()
    for path in (_INGRESSES, "/api/v1/services", "/api/v1/nodes"):
        api.traffic.wait_for_requests(verb, path, count=2, timeout=30)
    agent.await_line("Could not read from the API server")
    agent.await_that(lambda: agent.metric("nodeagent_api_up") == 0, "the metric")
    status, text = agent.page("/readyz")
    assert status == 200, "what is applied stays applied"
    assert "api: failed since" in text
    assert (read_managed_state(node), table(node), hosts_inode(node)) == before

    api.reset()
    api.store.apply(ingress("more", ["more.example.test"]))
    agent.await_that(lambda: "more.example.test" in names(node), "what came after the refusal")
