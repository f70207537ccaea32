"""A load balancer that publishes a hostname and no address, which its own targets can't reach."""

from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from tests.apiserver import Object
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.made_objects import ingress, write_config
from tests.daemon.managed_state import names, read_managed_state
from tests.daemon.running_agent import Agents, RunningAgent
from tests.endtoend.trying import assert_served
from tests.testbed.addresses import REGISTRY, SITE, Address
from tests.testbed.world import World

_OWN = "lb-1.elb.example.test"
_NEW = "new.example.test"
_OTHERS = "other.example.test"
_ELSEWHERE = IPv4Address("198.51.100.99")
_FIRST, _SECOND, _THIRD = (IPv4Address(f"203.0.113.{number}") for number in (97, 98, 99))
"""The load balancer's addresses; no node has a way there, as if it were the only target."""
_NO_WAY = "203.0.113.96/28"
_STATUS = {"loadBalancer": {"ingress": [{"hostname": _OWN}]}}
_AT_FIRST: dict[str, tuple[Address, ...]] = {
    _OWN: (_FIRST, _SECOND),
    SITE: (_SECOND, _FIRST),
    REGISTRY: (_FIRST,),
}


@pytest.fixture
def agent(world: World, api: ClusterApi, agents: Agents) -> Iterator[RunningAgent]:
    """An agent that trusts nothing but DNS; the load balancer and its Ingresses have only a hostname."""
    for kind, name, namespace in (
        ("services", "ingress-nginx-controller", "ingress-nginx"),
        ("ingresses", "web", "default"),
        ("ingresses", "registry", "registry"),
    ):
        published = api.store.get(kind, name, namespace)
        published["status"] = _STATUS
        api.store.update(published)
    services = [{"namespace": "ingress-nginx", "name": "ingress-nginx-controller", "hostnameOnly": True}]
    config = write_config(
        world.tmp / "hostname-only.yaml",
        loadBalancers={"services": services},
        hosts={"verify": "dns", "allow": [], "dnsRecheckSeconds": 1},
    )
    world.dns.set_records(_AT_FIRST)
    world.node1.run(["ip", "route", "add", "unreachable", _NO_WAY])
    try:
        started = agents.start(config=config)
        started.await_ready()
        started.await_that(lambda: names(world.node1).keys() == {SITE, REGISTRY}, "both names verified")
        yield started
    finally:
        world.node1.run(["ip", "route", "del", "unreachable", _NO_WAY])


def claim(name: str, host: str) -> Object:
    return {**ingress(name, [host]), "status": _STATUS}


def test_it_is_served_while_the_addresses_change(world: World, api: ClusterApi, agent: RunningAgent) -> None:
    """Nothing is redirected, and no hostname is withdrawn, be it looked up before the other or after it."""
    node, url = world.node1, f"https://{SITE}/"
    before = read_managed_state(node)
    assert before.redirects == {}
    assert set(before.names.values()) == before.addresses
    assert_served(world, node, url)
    assert not node.curl(url, resolve=_FIRST).ok

    world.dns.set_records({**_AT_FIRST, _OWN: (_THIRD,), SITE: (_THIRD,), _NEW: (_THIRD,)})
    api.store.create(claim("new", _NEW))
    agent.await_that(lambda: _NEW in names(node), "a name at the new address")
    world.dns.set_records({_OWN: (_THIRD,), SITE: (_THIRD,), REGISTRY: (_THIRD,), _NEW: (_THIRD,)})
    asked = world.dns.times_asked(REGISTRY)
    agent.await_that(lambda: world.dns.times_asked(REGISTRY) >= asked + 4, "the others being asked again")

    assert_served(world, node, url)
    assert read_managed_state(node).redirects == {}
    assert names(node).keys() == {SITE, REGISTRY, _NEW}
    refused = {line["name"] for line in agent.lines("Hostname refused")}
    assert not refused & {SITE, REGISTRY}
    agent.await_in_sync()


def test_without_dns_a_restart_keeps_what_is_there(world: World, agents: Agents, agent: RunningAgent) -> None:
    """It knows neither the load balancer's addresses nor the hostnames'."""
    node = world.node1
    before = names(node)
    with world.dns.silent():
        assert agent.stop() == 0
        restarted = agents.start(config=agent.config)
        restarted.await_ready()
        asked = restarted.metric("nodeagent_dns_names_asked_total", outcome="timeout")
        restarted.await_that(
            lambda: restarted.metric("nodeagent_dns_names_asked_total", outcome="timeout") >= asked + 3,
            "silence",
        )
        assert names(node) == before
        assert_served(world, node, f"https://{SITE}/")
    restarted.await_that(
        lambda: restarted.metrics().value("nodeagent_names", state="served", reason="Verified") == 2,
        "both being verified again",
    )
    assert names(node) == before
