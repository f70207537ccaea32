"""externalIPs: short-circuited like a load balancer's address, but set by anyone who can write a Service."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import Verdict
from nodeagent.model.facts import InterfaceAddress
from nodeagent.model.objects import Service
from tests.plan.made_up import FACTS, desired, endpoint, of_service, redirects, service


def with_external(*addresses: str, found: Service | None = None) -> Service:
    """A Service with these externalIPs."""
    ips = tuple(ip_address(text) for text in addresses)
    return replace(found or service(ports=("443",)), external_ips=ips)


@pytest.mark.parametrize("own", ["198.51.100.1", "198.51.100.2", "192.0.2.5", "127.0.0.1", "169.254.66.9"])
def test_no_address_of_the_node_or_of_the_api_server_is_taken(own: str) -> None:
    """Even of a listed Service: its Node's, an interface's, the API server's, loopback, the relay's."""
    facts = replace(
        FACTS,
        addresses=(InterfaceAddress(ip_address("198.51.100.2"), 24, "eth1"),),
        api_servers=frozenset({endpoint("192.0.2.5:6443")}),
    )
    planned = desired(with_external(own, "203.0.113.7"), facts=facts)
    assert set(redirects(planned)) == {"192.0.2.1:443", "203.0.113.7:443"}
    (remark,) = of_service(planned).remarks
    assert remark.startswith(f"{own}: ")
    assert "not redirected" in remark


def test_one_that_could_not_be_read_is_reported() -> None:
    """And the rest served."""
    planned = desired(service(problems=("spec.externalIPs: 'x' is not an IP address",)))
    assert of_service(planned).verdict is Verdict.SERVED
    assert of_service(planned).remarks == ("spec.externalIPs: 'x' is not an IP address",)
