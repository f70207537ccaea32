"""Which relay address a load balancer gets: always the same, whichever are added later."""

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import Service
from nodeagent.plan.capacity import allocate
from nodeagent.plan.precedence import by_age
from tests.plan.made_up import service

networks: st.SearchStrategy[IPv4Network | IPv6Network] = st.sampled_from(
    ["10.9.0.0/24", "10.9.0.0/29", "10.9.0.0/30", "fd00::/112", "fd00::/126"]
).map(ip_network)
clusters = st.lists(
    st.builds(service, st.from_regex(r"[a-z]{1,3}", fullmatch=True), created=st.integers(0, 9) | st.none()),
    max_size=12,
    unique_by=lambda found: found.ref,
)


@given(clusters, networks)
def test_addresses_are_unique_and_such_as_a_host_may_have(
    cluster: list[Service], network: IPv4Network | IPv6Network
) -> None:
    """Never the network's own, never IPv4's broadcast address."""
    found = allocate(sorted(cluster, key=by_age), network)
    assert len(set(found.values())) == len(found)
    spare = {network.network_address} | ({network.broadcast_address} if network.version == 4 else set())
    for address in found.values():
        assert address in network
        assert address not in spare


@given(clusters, networks)
def test_the_oldest_are_served_first(cluster: list[Service], network: IPv4Network | IPv6Network) -> None:
    """A full range leaves out only the newest; a Service without a time is the newest."""
    slots = network.num_addresses - (2 if network.version == 4 else 1)
    served = allocate(sorted(cluster, key=by_age), network)
    assert len(served) == min(len(cluster), slots)
    dated = sorted(found.created for found in cluster if found.created and found.ref.path in served)
    left_out = [found for found in cluster if found.ref.path not in served]
    assert all(found.created is None or not dated or found.created >= dated[-1] for found in left_out)


@pytest.mark.parametrize("network", ["10.9.0.0/31", "10.9.0.0/32", "fd00::/128"])
def test_a_range_without_room_gives_nothing(network: str) -> None:
    """And is no crash."""
    assert allocate([service()], ip_network(network)) == {}


def test_the_addresses_are_these_and_stay_these() -> None:
    """Nodes have them: a new version of the agent must not choose others."""
    cluster = [service(name, created=0) for name in ("blue", "green", "red")]
    found = allocate(sorted(cluster, key=by_age), IPv4Network("169.254.66.0/24"))
    assert {path: str(address) for path, address in found.items()} == {
        "ingress/blue": "169.254.66.98",
        "ingress/green": "169.254.66.157",
        "ingress/red": "169.254.66.160",
    }
    found = allocate(sorted(cluster, key=by_age), IPv6Network("fd68:6169:7270::/112"))
    assert {path: str(address) for path, address in found.items()} == {
        "ingress/blue": "fd68:6169:7270::c798",
        "ingress/green": "fd68:6169:7270::5982",
        "ingress/red": "fd68:6169:7270::947f",
    }
