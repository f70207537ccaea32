"""A second LoadBalancer Service before the same ingress controller."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import yaml

from tests.endtoend.configuration import configure
from tests.testbed.addresses import POD1, POD2
from tests.testbed.services import INGRESS_SERVICE, ServicePort, ServiceRules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.agent import Agent

SECOND_NAME = "second.example.test"
SECOND_IP = IPv4Address("203.0.113.20")
SECOND_SERVICE = ServiceRules(
    namespace="second",
    name="controller",
    cluster_ip=IPv4Address("10.96.0.20"),
    load_balancer_ips=(SECOND_IP,),
    ports=(ServicePort("http", 80, 31080, 80),),
    endpoints=(POD1, POD2),
)


def write_manifest(agent: Agent) -> Path:
    """Tell nodeagent of the Service, of an Ingress behind it, and that it sends PROXY.

    Returns:
        The manifest: removing it removes both objects.
    """
    status = {"loadBalancer": {"ingress": [{"ip": str(SECOND_IP)}]}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": SECOND_SERVICE.namespace, "name": SECOND_SERVICE.name},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": str(SECOND_SERVICE.cluster_ip),
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
