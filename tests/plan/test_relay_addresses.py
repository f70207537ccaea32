"""Which relay address a load balancer gets: always the same, whichever are added later."""

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import Service, by_age
from nodeagent.plan.balancers.capacity import allocate
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


@pytest.mark.parametrize("network", ["10.9.0.0/31", "10.9.0.0/32", "fd00::/128"])
def test_a_range_without_room_gives_nothing(network: str) -> None:
    """And is no crash."""
    assert allocate([service()], ip_network(network)) == {}
