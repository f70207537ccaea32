"""`ipMode: Proxy`: believed, unless the node's own rules or the administrator say otherwise."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.objects import Snapshot
from nodeagent.plan.eligibility import doubtful_endpoints
from tests.plan.made_up import FACTS, config, desired, endpoint, of_service, point, service

IN_PROXY_MODE = service(points=(point("192.0.2.1", mode="Proxy"),), ports=("443",))
DOUBTFUL = {endpoint("192.0.2.1:443")}
LISTED = "services: [{namespace: ingress, name: blue}]"
SEEN = replace(FACTS, short_circuited=frozenset({ip_address("192.0.2.1")}))


def options(mode: str) -> str:
    """The configuration with that choice."""
    return f"loadBalancers: {{{LISTED}, ipMode: {mode}}}"


def test_honor_believes_it_whatever_the_rules_say() -> None:
    """For who knows better."""
    planned = desired(IN_PROXY_MODE, facts=SEEN, options=config(options("honor")))
    assert of_service(planned).code == "IPModeProxy"


def test_an_impossible_address_stays_one() -> None:
    """Whatever its ipMode."""
    loopback = service(points=(point("127.0.0.1", mode="Proxy"),))
    planned = desired(loopback, options=config(options("ignore")))
    assert not planned.dnat.redirects


@pytest.mark.parametrize("mode", ["honor", "ignore"])
def test_rules_are_read_only_where_they_would_decide(mode: str) -> None:
    """Not where the administrator has."""
    snapshot = Snapshot(services=(IN_PROXY_MODE,))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
    assert doubtful_endpoints(snapshot, config(options(mode))) == frozenset()


def test_only_proxy_load_balancers_in_that_mode_are_in_doubt() -> None:
    """Of a Service with both kinds of address, only the one."""
    mixed = service(
        points=(point("192.0.2.1", mode="Proxy"), point("192.0.2.2"), point(hostname="lb")), ports=("443",)
    )
    unlisted = service("red", points=(point("192.0.2.3", mode="Proxy"),))
    snapshot = Snapshot(services=(mixed, unlisted, service("green")))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
