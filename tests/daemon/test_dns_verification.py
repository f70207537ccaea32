"""A real DNS server answers, changes its answers, falls silent and recovers; the hosts file follows."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import pytest

from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import names, read_managed_state
from tests.daemon.settings import write_config
from tests.testbed import addresses
from tests.testbed.addresses import EDGE, FRONTED, REGISTRY, SITE
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.addresses import Address
    from tests.testbed.world import World

pytestmark = needs_root

_HIJACKED = "registry-1.docker.io"
_ELSEWHERE = IPv4Address("198.51.100.99")
_LB = (addresses.LOAD_BALANCER_IP,)
_ALL: dict[str, tuple[Address, ...]] = dict.fromkeys((SITE, REGISTRY), _LB)
"""The names that Ingresses claim at first."""


@pytest.fixture
def agent(world: World, api: ClusterApi, agents: Agents) -> Iterator[RunningAgent]:
    """An agent that trusts nothing but DNS, after its first sync; DNS answers as at first, then and later."""
    assert api.kubeconfig.exists()
    world.dns.set_records(_ALL)
    config = write_config(
        world.tmp / "dns-proof.yaml", hosts={"verify": "dns", "allow": [], "dnsRecheckSeconds": 1}
    )
    started = agents.start(config=config)
    started.await_ready()
    started.await_that(lambda: set(names(world.node1)) == set(_ALL), "all names proven")
    yield started
    world.dns.set_records(_ALL)


def test_no_claim_takes_over_a_hostname_of_others(world: World, api: ClusterApi, agent: RunningAgent) -> None:
    """An Ingress for a public registry's name changes nothing on the node; status and an Event say why.

    A name behind a CDN stays untouched in the same way: the node still connects to the CDN.
    """
    node = world.node1
    world.dns.set_records({**_ALL, _HIJACKED: (_ELSEWHERE,), EDGE: (_ELSEWHERE,)})
    before, lines = read_managed_state(node), node.read_hosts()
    api.store.create(ingress("hijack", [_HIJACKED, FRONTED, "localhost"]))
    api.store.create(ingress("honest", ["unheard-of.example.test"]))
    agent.await_line("Hostname refused", name=_HIJACKED)
    agent.await_line("Hostname refused", name=FRONTED)
    agent.await_line("Hostname refused", name="unheard-of.example.test")

    assert (read_managed_state(node), node.read_hosts()) == (before, lines)
    for name in (_HIJACKED, FRONTED):
        assert node.run(["getent", "ahostsv4", name]).stdout.startswith(str(_ELSEWHERE))
    reasons = _reasons(agent)
    service = "Service ingress-nginx/ingress-nginx-controller"
    assert reasons[_HIJACKED] == (
        "NotVerified",
        f"not verified: DNS answers {_ELSEWHERE}, not an address of {service} ({addresses.LOAD_BALANCER_IP})",
    )
    assert reasons[FRONTED] == reasons[_HIJACKED]
    assert reasons["unheard-of.example.test"] == ("NoSuchName", "not verified: DNS has no such hostname")
    assert world.dns.times_asked(_HIJACKED) > 0
    assert world.dns.times_asked("localhost") == 0

    agent.await_that(lambda: len(api.store.all("events")) == 3, "the Events")
    (event,) = (one for one in api.store.all("events") if one["reason"] == "NameNotVerified")
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "ingress-nginx-controller")
    assert (
        f"{_HIJACKED} (Ingress default/hijack): not verified: DNS does not answer with an address of"
        in (event["message"])
    )
    assert FRONTED in event["message"]


def test_a_name_follows_its_dns(world: World, agent: RunningAgent) -> None:
    """Moved elsewhere, or removed: withdrawn. Back: written again. The others stay all the while."""
    node = world.node1
    others = names(node).keys() - {REGISTRY}
    for answer in ((_ELSEWHERE,), ()):
        world.dns.set_records({**_ALL, REGISTRY: answer})
        agent.await_that(lambda: names(node).keys() == others, f"{REGISTRY} with {answer} being withdrawn")
        world.dns.set_records({**_ALL, REGISTRY: (_ELSEWHERE, *_LB)})
        agent.await_that(lambda: REGISTRY in names(node), f"{REGISTRY} being back")
    refused = [line["reason"] for line in agent.lines("Hostname refused", name=REGISTRY)]
    assert len(refused) == 2
    assert refused[0].startswith(f"not verified: DNS answers {_ELSEWHERE}, ")
    assert refused[1] == "not verified: DNS has no such hostname"
    agent.await_in_sync()


def test_while_dns_does_not_respond_the_node_keeps_what_was_verified(
    world: World, api: ClusterApi, agents: Agents, agent: RunningAgent
) -> None:
    """Even if another program removes the block, and across the agent's restart; nothing new is verified.

    When DNS is back the hosts file follows what it says by then.
    """
    node = world.node1
    before = names(node)
    with world.dns.silent():
        agent.await_that(lambda: _kept(agent) == 2, "silence")
        assert agent.metric("nodeagent_dns_kept_seconds") > 0
        assert agent.metric("nodeagent_dns_names_asked_total", outcome="timeout") >= 2
        node.run(["sed", "-i", "/nodeagent/d; /169.254.66/d", "/etc/hosts"])
        agent.await_that(lambda: names(node) == before, "the block being back")

        assert agent.stop() == 0
        restarted = agents.start(config=agent.config)
        restarted.await_ready()
        assert names(node) == before
        api.store.create(ingress("new", ["new.example.test"]))
        restarted.await_line("Hostname refused", name="new.example.test")
        restarted.await_that(lambda: _kept(restarted) == 2, "silence again")
        reasons = {
            name: line["reason"] for name in (SITE, "new.example.test") for line in restarted.lines(name=name)
        }
        trouble = f"DNS can't be queried: {addresses.LB}: no answer in time"
        assert reasons[SITE] == f"kept: it is written, and {trouble}"
        assert reasons["new.example.test"] == f"not verified: {trouble}"
        assert names(node) == before
    world.dns.set_records({SITE: _LB, "new.example.test": _LB, REGISTRY: (_ELSEWHERE,)})
    restarted.await_that(lambda: names(node).keys() == {SITE, "new.example.test"}, "what DNS says now")
    restarted.await_that(lambda: restarted.metric("nodeagent_dns_kept_seconds") == 0, "nothing being kept")
    restarted.await_in_sync()


def _kept(agent: RunningAgent) -> float:
    """How many names are kept that DNS can't be asked for."""
    return agent.metrics().value("nodeagent_names", state="served", reason="Kept") or 0


def _reasons(agent: RunningAgent) -> dict[str, tuple[str, str]]:
    """The code and the reason of each name, as another process finds them out by itself."""
    document: dict[str, Any] = json.loads(agent.plan("-o", "json").stdout)
    return {one["name"]: (one["code"], one["reason"]) for one in document["names"]}
