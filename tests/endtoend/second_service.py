"""A second LoadBalancer Service before the same ingress controller."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import yaml

from tests.endtoend.configuration import configure
from tests.testbed.addresses import POD1, POD1_6, POD2, POD2_6, Family
from tests.testbed.agent import Agent
from tests.testbed.cluster_objects import load_balancer_status, service_addresses
from tests.testbed.services import INGRESS_SERVICE, ServicePort, ServiceRules

SECOND_NAME = "second.example.test"
SECOND_IP = IPv4Address("203.0.113.20")
SECOND_IP_6 = IPv6Address("2001:db8:3::20")
SECOND_SERVICE = ServiceRules(
    namespace="second",
    name="controller",
    cluster_ips=(IPv4Address("10.96.0.20"), IPv6Address("fd00:10:96::20")),
    load_balancer_ips=(SECOND_IP, SECOND_IP_6),
    ports=(ServicePort("http", 80, 31080, 80),),
    endpoints=(POD1, POD2, POD1_6, POD2_6),
)


def write_manifest(agent: Agent, families: Iterable[Family]) -> Path:
    """Tell nodeagent of the Service, of an Ingress behind it, and that it sends PROXY.

    Args:
        agent: Whose manifests and configuration get it.
        families: Those that the world supports.

    Returns:
        The manifest: removing it removes both objects.
    """
    spoken = SECOND_SERVICE.within(families)
    status = load_balancer_status(spoken.load_balancer_ips)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": SECOND_SERVICE.namespace, "name": SECOND_SERVICE.name},
        "spec": {
            "type": "LoadBalancer",
            **service_addresses(spoken.cluster_ips),
            "ports": [{"name": port.name, "port": port.port} for port in SECOND_SERVICE.ports],
        },
        "status": status,
    }
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": SECOND_SERVICE.namespace, "name": "web"},
        "spec": {"rules": [{"host": SECOND_NAME}]},
        "status": status,
    }
    file = agent.manifests / "second.yaml"
    file.write_text(yaml.safe_dump_all([service, ingress]), encoding="utf-8")
    configure(
        agent,
        loadBalancers={
            "services": [
                {"namespace": known.namespace, "name": known.name}
                for known in (INGRESS_SERVICE, SECOND_SERVICE)
            ]
        },
    )
    return file
