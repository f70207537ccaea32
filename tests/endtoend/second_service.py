"""A second LoadBalancer Service before the same ingress controller."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import yaml

from tests.apiserver import objects
from tests.endtoend.configuration import configure
from tests.testbed.addresses import POD1, POD1_6, POD2, POD2_6, Family
from tests.testbed.agent import Agent
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

    Returns the manifest: removing it removes both objects.
    """
    known = SECOND_SERVICE.within(families)
    addresses = [str(each) for each in known.load_balancer_ips]
    service = objects.service(
        known.name,
        known.namespace,
        kind="LoadBalancer",
        cluster_ips=[str(each) for each in known.cluster_ips],
        ports=[objects.Port(each.name, each.port, each.port) for each in known.ports],
        addresses=addresses,
    )
    ingress = objects.ingress("web", known.namespace, hosts=[SECOND_NAME], addresses=addresses)
    file = agent.manifests / "second.yaml"
    file.write_text(yaml.safe_dump_all([service, ingress]), encoding="utf-8")
    listed = [{"namespace": each.namespace, "name": each.name} for each in (INGRESS_SERVICE, SECOND_SERVICE)]
    configure(agent, loadBalancers={"services": listed})
    return file
