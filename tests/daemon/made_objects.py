"""Objects of the cluster that tests make: load balancers that send PROXY, and Ingresses behind them."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tests.apiserver import objects
from tests.apiserver.objects import Port
from tests.daemon.settings import MADE_NAMESPACE
from tests.endtoend.second_service import SECOND_NAME, SECOND_SERVICE
from tests.testbed.addresses import LOAD_BALANCER_IP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.apiserver import Object
    from tests.testbed.addresses import Address

MADE_CLUSTER_IPS = IPv4Network("10.96.1.0/24")
"""Of the Services that `made_service` builds."""


def ingress(name: str, hosts: Sequence[str], address: str = str(LOAD_BALANCER_IP)) -> Object:
    """Build an Ingress in the namespace default, behind the load balancer of an address."""
    return objects.ingress(name, hosts=hosts, addresses=[address])


def second_service(address: Address) -> Object:
    """Build the Service that kube-proxy knows as SECOND_SERVICE."""
    ports = [Port(port.name, port.port, port.target_port, port.node_port) for port in SECOND_SERVICE.ports]
    return objects.service(
        SECOND_SERVICE.name,
        SECOND_SERVICE.namespace,
        kind="LoadBalancer",
        cluster_ips=[str(SECOND_SERVICE.cluster_ip)],
        ports=ports,
        addresses=[str(address)],
    )


def second_ingress(address: Address) -> Object:
    """Build the Ingress behind it."""
    return objects.ingress("web", SECOND_SERVICE.namespace, hosts=[SECOND_NAME], addresses=[str(address)])


def made_service(number: int, *, ports: Sequence[int] = (80, 443), address: str = "") -> Object:
    """Build one of the Services that the agents' configuration lists; nothing answers behind it."""
    return objects.service(
        f"lb-{number}",
        MADE_NAMESPACE,
        kind="LoadBalancer",
        cluster_ips=[str(MADE_CLUSTER_IPS[number + 1])],
        ports=[Port(f"p{port}", port, port, 30000 + port) for port in ports],
        addresses=[address or made_address(number)],
    )


def made_address(number: int) -> str:
    """Return the address of such a Service's load balancer."""
    return f"203.0.113.{100 + number}"
