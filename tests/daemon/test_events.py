"""Kubernetes Events tell an administrator what is necessary, once; nothing depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.apiserver import Rule
from tests.daemon.made_objects import ingress, made_service
from tests.daemon.managed_state import names, redirects, relay_addresses
from tests.daemon.settings import MADE_NAMESPACE, write_config
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.apiserver import Object
    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.testbed.world import World

pytestmark = needs_root

_FOREIGN = "registry-1.example.org"
_SMALL_RANGE = "169.254.66.0/29"
_MADE = 6
_CHANGES = 10
_READ_ONLY = [
    Rule([""], ["services", "nodes"], ["list", "watch"]),
    Rule(["networking.k8s.io"], ["ingresses"], ["list", "watch"]),
]


def test_a_rejected_hostname_is_reported_once_on_its_service(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """One Event says which name of which Ingress and why; changes elsewhere do not repeat it."""
    api.store.create(ingress("foreign", [_FOREIGN]))
    agent = agents.start_ready()
    agent.await_that(lambda: _events(api), "the Event")
    for number in range(_CHANGES):
        api.store.apply(ingress("more", [f"more-{number}.example.test"]))
        agent.await_that(lambda name=f"more-{number}.example.test": name in names(world.node1), "the change")
    (event,) = _events(api)
    assert (event["type"], event["reason"]) == ("Warning", "NameNotVerified")
    assert event["involvedObject"]["kind"] == "Service"
    assert event["involvedObject"]["name"] == "ingress-nginx-controller"
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "ingress-nginx"
    assert _FOREIGN in event["message"]
    assert "Ingress default/foreign" in event["message"]
    assert "no suffix in hosts.allow covers it" in event["message"]
    assert event["source"] == {"component": "nodeagent", "host": "node1"}
    assert _FOREIGN not in names(world.node1)


def test_an_exhausted_range_is_reported_on_the_service_that_is_left_out(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """Of seven load balancers six get one of six addresses; the seventh gets an Event with the fix."""
    for number in range(_MADE):
        api.store.create(made_service(number))
    config = write_config(world.tmp / "small.yaml", relay={"ipv4": _SMALL_RANGE})
    agent = agents.start(config=config)
    agent.await_ready()
    agent.await_that(lambda: _events(api), "the Event")
    assert len(relay_addresses(world.node1)) == _MADE
    (event,) = _events(api)
    assert (event["type"], event["reason"]) == ("Warning", "RangeExhausted")
    assert f"no relay address is left in {_SMALL_RANGE}: widen relay.ipv4" in event["message"]
    left_out = agent.lines("Load balancer refused")
    assert [line["service"] for line in left_out] == [
        f"{event['involvedObject']['namespace']}/{event['involvedObject']['name']}"
    ]

    # One is deleted: the one that was left out is served, and no further Event is needed.
    served = next(
        number
        for number in range(_MADE)
        if (MADE_NAMESPACE, f"lb-{number}")
        != (event["metadata"]["namespace"], event["involvedObject"]["name"])
    )
    api.store.delete("services", f"lb-{served}", MADE_NAMESPACE)
    agent.await_that(
        lambda: len(redirects(world.node1)) == 3 + 2 * (_MADE - 1), "all that are left being served"
    )
    assert len(_events(api)) == 1


def test_many_refusals_are_few_events(world: World, api: ClusterApi, agents: Agents) -> None:
    """A hundred names of one load balancer are one Event, whose message names some and counts the rest."""
    for number in range(100):
        api.store.create(ingress(f"foreign-{number}", [f"n{number}.example.org"]))
    agent = agents.start_ready()
    agent.await_that(lambda: _events(api), "the Event")
    api.store.create(ingress("last", ["last.example.test"]))
    agent.await_that(lambda: "last.example.test" in names(world.node1), "a change afterwards")
    (event,) = _events(api)
    assert event["message"].endswith("and 95 more")


def test_where_events_are_forbidden_the_agent_goes_on(world: World, api: ClusterApi, agents: Agents) -> None:
    """It says so once, with the rule that would allow them, and serves as ever."""
    api.access.allow_only(_READ_ONLY)
    api.store.create(ingress("foreign", [_FOREIGN]))
    agent = agents.start_ready()
    told = agent.await_line("Could not post an Event")
    assert '{apiGroups: [""], resources: ["events"], verbs: ["create"]}' in told["reason"]
    for number in range(_CHANGES):
        # Other names are refused on other Services: there is more that could be reported.
        api.store.apply(made_service(number, address=str(addresses.LOAD_BALANCER_IP)))
        api.store.apply(ingress("more", [f"more-{number}.example.test", "localhost"]))
        agent.await_that(lambda name=f"more-{number}.example.test": name in names(world.node1), "the change")
    api.traffic.wait_for_requests("create", "*/events", count=3)
    assert len(agent.lines("Could not post an Event")) == 1
    assert _events(api) == []


def _events(api: ClusterApi) -> list[Object]:
    return api.store.all("events")
