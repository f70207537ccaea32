"""Load balancers of a tenant, whom DNS confirms: what they get of the node, and what of it stays others'."""

from collections.abc import Sequence
from ipaddress import ip_address

from tests.apiserver import objects
from tests.apiserver.objects import Port
from tests.daemon.agents import Agents
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.managed_state import names, redirects
from tests.daemon.settings import write_config
from tests.testbed.addresses import LOAD_BALANCER_IP, NODE2, REGISTRY, SITE
from tests.testbed.fixtures import needs_root
from tests.testbed.squatter import squatting
from tests.testbed.world import World

pytestmark = needs_root

_HTTPS = Port("https", 443, 443)
_OWN, _OF_NODE, _WITH_UDP = "own.example.test", "node2.example.test", "udp.example.test"
_SEND_PROXY = {"nodeagent.io/proxy-protocol": "v2"}


def test_a_tenant_gets_no_node_s_name_no_udp_and_no_port_of_kube_proxy_s(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    config = write_config(
        world.tmp / "tenants.yaml", hosts={"verify": "dns", "allow": [], "dnsRecheckSeconds": 1}
    )
    made: Sequence[tuple[str, str, Sequence[Port]]] = [
        (_OF_NODE, str(NODE2), [_HTTPS]),
        (_WITH_UDP, "203.0.113.61", [_HTTPS, Port("http3", 443, 443, protocol="UDP")]),
        ("health.example.test", "203.0.113.62", [_HTTPS, Port("check", 31000, 31000)]),
        (_OWN, "203.0.113.63", [_HTTPS]),
    ]
    for number, (host, address, ports) in enumerate(made):
        balancer = objects.service(
            f"lb-{number}",
            "tenant",
            kind="LoadBalancer",
            cluster_ips=[f"10.96.7.{number + 1}"],
            ports=ports,
            addresses=[address],
            annotations=_SEND_PROXY,
        )
        api.store.create(balancer)
        api.store.create(objects.ingress(f"claim-{number}", "tenant", hosts=[host], addresses=[address]))
    of_tenant = {host: (ip_address(address),) for host, address, _ in made}
    world.dns.set_records({**of_tenant, SITE: (LOAD_BALANCER_IP,), REGISTRY: (LOAD_BALANCER_IP,)})
    agent = agents.start(config=config)
    agent.await_ready()
    agent.await_that(lambda: {_OWN, SITE, REGISTRY} <= names(world.node1).keys(), "what DNS confirms")
    agent.await_line("Hostname skipped", name=_OF_NODE)
    assert not names(world.node1).keys() & {_OF_NODE, _WITH_UDP}
    redirected = redirects(world.node1)
    assert {f"{address}:443" for _, address, _ in made[1:]} <= redirected.keys()
    assert "203.0.113.62:31000" not in redirected
    # As kube-proxy does it for a Service's healthCheckNodePort.
    with squatting(world.node1, "0.0.0.0", 31000):
        pass
