"""SIGHUP: a changed configuration takes over at once, in all components."""

from __future__ import annotations

from signal import SIGHUP
from typing import TYPE_CHECKING

from tests.apiserver import objects
from tests.daemon.connections import requests
from tests.daemon.made_objects import ingress, made_address, made_service
from tests.daemon.managed_state import names, read_managed_state, redirects
from tests.daemon.settings import MADE_NAMESPACE, write_config
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.world import World

pytestmark = needs_root


def test_a_good_configuration_takes_over(world: World, api: ClusterApi, agent: RunningAgent) -> None:
    """Names and DNAT follow it at once; what it does not touch is served on."""
    node = world.node1
    agent.await_that(lambda: sorted(names(node)) == [addresses.REGISTRY, addresses.SITE], "the beginning")
    before = read_managed_state(node)
    with requests(node, f"http://{addresses.REGISTRY}/"):
        for sections, wanted_names, dnat in (
            ({"hosts": {"exclude": [addresses.SITE]}}, [addresses.REGISTRY], True),
            ({"dnat": {"backend": "none"}}, [addresses.REGISTRY, addresses.SITE], False),
            ({}, [addresses.REGISTRY, addresses.SITE], True),
        ):
            write_config(agent.config, **sections)
            agent.signal(SIGHUP)
            agent.await_that(
                lambda wanted=wanted_names, dnat=dnat: (
                    sorted(names(node)) == wanted and bool(redirects(node)) is dnat
                ),
                f"the configuration {sections} in force",
            )
            agent.await_in_sync()
    assert read_managed_state(node) == before
    assert agent.metric("nodeagent_config_reloads_total", result="ok") == 3
    api.store.create(ingress("more", ["more.example.test"]))
    agent.await_that(lambda: "more.example.test" in names(node), "what comes afterwards")


def test_a_controllers_config_map_makes_its_service_proxy(
    world: World, api: ClusterApi, agent: RunningAgent
) -> None:
    """From the moment the configuration names it, for as long as the ConfigMap says so."""
    node = world.node1
    agent.await_that(lambda: sorted(names(node)) == [addresses.REGISTRY, addresses.SITE], "the beginning")
    before = read_managed_state(node)
    match = f"{made_address(11)}:443"
    api.store.create(made_service(11))
    api.store.create(objects.config_map("lb-11", MADE_NAMESPACE, {"use-proxy-protocol": "true"}))
    write_config(
        agent.config,
        loadBalancers={"controllerConfigMaps": [{"namespace": MADE_NAMESPACE, "name": "lb-11"}]},
    )
    agent.signal(SIGHUP)
    agent.await_that(lambda: match in redirects(node), "the redirect")
    api.store.apply(objects.config_map("lb-11", MADE_NAMESPACE, {"use-proxy-protocol": "false"}))
    agent.await_that(lambda: match not in redirects(node), "its end")
    write_config(agent.config)
    agent.signal(SIGHUP)
    agent.await_in_sync()
    assert read_managed_state(node) == before
