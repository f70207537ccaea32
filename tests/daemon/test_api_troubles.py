"""Whatever the API server does to the agent, the node loses nothing by it, and catches up afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apiserver import Ending, faults
from tests.daemon.connections import requests
from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import names, redirects, table
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.world import World

pytestmark = needs_root


def _gone(api: ClusterApi) -> None:
    """The history that a watch would go on from is compacted meanwhile: 410."""
    api.stop_listening()
    _change(api)
    api.compact()
    api.start_listening()


def _gone_as_status(api: ClusterApi) -> None:
    """The same from a server that says it by HTTP status."""
    api.options.expired_in_stream = False
    _gone(api)


def _cut_lines(api: ClusterApi) -> None:
    """Connections break in the middle of an event."""
    api.faults.add(faults.CutLine(), times=2)
    api.faults.add(faults.CutLine(reset=True), times=1)
    _change(api)


def _server_errors(api: ClusterApi) -> None:
    """The server fails for a while, for lists as for watches."""
    api.faults.add(faults.Answer(500), verbs=["list", "watch"], times=6)
    api.end_watches(Ending.RESET)
    _change(api)
    api.compact()


def _slow_lists(api: ClusterApi) -> None:
    """Everything has to be listed again, and lists take their time."""
    api.faults.add(faults.Delay(1.0), verbs=["list"], times=4)
    _gone(api)


def _broken_lists(api: ClusterApi) -> None:
    """Lists break off half way."""
    api.faults.add(faults.CutBody(200), verbs=["list"], times=3)
    _gone(api)


def _duplicates(api: ClusterApi) -> None:
    """Every event arrives twice."""
    api.faults.add(faults.Duplicate(), times=None)
    _change(api)


def _disorder(api: ClusterApi) -> None:
    """Events overtake one another, and come in small pieces."""
    api.faults.add(faults.SplitLines(11), times=None)
    api.faults.add(faults.Reorder(), times=None)
    _change(api)


def _change(api: ClusterApi) -> None:
    """One Ingress is deleted, one gets another name, two are created, one of which is deleted again."""
    api.store.delete("ingresses", "web", "default")
    api.store.apply(ingress("short", ["short.example.test"]))
    api.store.apply(ingress("kept", ["first.example.test"]))
    api.store.apply(ingress("kept", ["second.example.test"]))
    api.store.delete("ingresses", "short", "default")


@pytest.mark.parametrize(
    "trouble",
    [_gone, _gone_as_status, _cut_lines, _server_errors, _slow_lists, _broken_lists, _duplicates, _disorder],
)
def test_the_node_catches_up(
    world: World, api: ClusterApi, agent: RunningAgent, trouble: Callable[[ClusterApi], None]
) -> None:
    """In the end it is as the API says, and no request was lost meanwhile."""
    node = world.node1
    agent.await_that(lambda: sorted(names(node)) == [addresses.REGISTRY, addresses.SITE], "the beginning")
    with requests(node, f"http://{addresses.REGISTRY}/"):
        trouble(api)
        expected = [addresses.REGISTRY, "second.example.test"]
        agent.await_that(lambda: sorted(names(node)) == expected, "catching up")
        agent.await_in_sync()
    api.options.expired_in_stream = True


def test_an_empty_list_removes_what_went_and_nothing_else(
    world: World, api: ClusterApi, agent: RunningAgent
) -> None:
    """With no Ingress left the names go; the load balancer is still there and still served."""
    node = world.node1
    agent.await_that(lambda: sorted(names(node)) == [addresses.REGISTRY, addresses.SITE], "the beginning")
    before = (redirects(node), table(node))
    with requests(node, f"http://{addresses.LOAD_BALANCER_IP}/"):
        with api.away():
            api.store.replace_all("ingresses", [])
            api.compact()
        agent.await_that(lambda: names(node) == {}, "the names being gone")
        agent.await_in_sync()
    assert (redirects(node), table(node)) == before


def test_a_malformed_object_is_skipped_and_the_others_are_served(
    world: World, api: ClusterApi, agent: RunningAgent
) -> None:
    """It is named in the log with its reason; an object that was served and breaks is withdrawn alone."""
    broken = ingress("broken", ["broken.example.test"])
    broken["spec"]["rules"] = "not a list"
    api.store.apply(broken)
    api.store.apply(ingress("sound", ["sound.example.test"]))
    agent.await_that(lambda: "sound.example.test" in names(world.node1), "the sound one being served")
    skipped = agent.await_line("Skipped an object", object="Ingress default/broken")
    assert "rules" in skipped["reason"]
    assert addresses.SITE in names(world.node1)
    api.store.apply(ingress("broken", ["mended.example.test"]))
    agent.await_that(lambda: "mended.example.test" in names(world.node1), "the mended one being served")
