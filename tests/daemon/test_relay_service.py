"""Next to an installed hairpin-proxy: names at its ClusterIP, DNAT to one of its pods, nothing of our own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.apiserver import objects
from tests.apiserver.objects import Endpoint, Port
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.connections import OpenConnection, new_connections
from tests.daemon.made_objects import write_config
from tests.daemon.managed_state import names, redirects, relay_addresses
from tests.daemon.running_agent import Agents, RunningAgent
from tests.testbed import addresses
from tests.testbed.addresses import LB, POD_CIDR1
from tests.testbed.inside import fill_etc, run_ip
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes
from tests.testbed.services import ServicePort, ServiceRules
from tests.testbed.world import World

NAMESPACE = NAME = "hairpin-proxy"
CLUSTER_IP = IPv4Address("10.96.0.30")
POD = IPv4Address("10.244.1.3")
"""Of the pod on node1."""
PORTS = {80: 10080, 443: 10443}
"""The Service's, and the pods'."""
_GATEWAY = POD_CIDR1[1]

_CONFIGURATION = Path(__file__).with_name("hairpin_proxy.cfg")


def start_hairpin_proxy(pod: Host) -> None:
    """Run HAProxy as hairpin-proxy runs it."""
    process = pod.popen(["haproxy", "-db", "-f", _CONFIGURATION], log="hairpin-proxy")
    for target in PORTS.values():
        pod.await_port(target, process)


@contextmanager
def pod_on_node1(world: World) -> Iterator[Host]:
    """Provide one more pod on node1: a host behind it, reached over a cable of its own."""
    etc = world.tmp / "etc-pod3"
    fill_etc(etc, "pod3", (POD,), LB, world.certificates.ca)
    with Host("pod3", etc, world.logs) as host:
        cable = f"link add pod3 type veth peer name eth0 netns {host.pid}"
        run_ip(world.node1, [cable, "link set pod3 up", f"route add {POD} dev pod3"])
        # The node's other pod takes the whole range for its own cable's: the node answers for this pod there.
        world.node1.run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/pod1/proxy_arp"])
        own = [f"address add {POD}/32 dev eth0", "link set eth0 up", f"route add {_GATEWAY} dev eth0"]
        run_ip(host, [*own, f"route add default via {_GATEWAY}"])
        yield host


_BY_NAME = (f"http://{addresses.SITE}/", f"https://{addresses.SITE}/")
_BY_ADDRESS = f"http://{addresses.LOAD_BALANCER_IP}/"


@pytest.fixture(scope="module")
def pods(world: World) -> Iterator[None]:
    with pod_on_node1(world) as pod3:
        for pod in (pod3, world.pod2):
            start_hairpin_proxy(pod)
        ports = tuple(ServicePort(f"p{port}", port, 0, target) for port, target in PORTS.items())
        service = ServiceRules(NAMESPACE, NAME, (CLUSTER_IP,), (), ports, (POD, addresses.POD2))
        for node in world.nodes:
            node.kube_proxy.add(service)
        yield


@pytest.fixture
def beside(world: World, api: ClusterApi, pods: None) -> Iterator[RunningAgent]:
    assert pods is None
    ports = [Port(f"p{port}", port, target) for port, target in PORTS.items()]
    api.store.create(objects.service(NAME, NAMESPACE, cluster_ips=[str(CLUSTER_IP)], ports=ports))
    _endpoints(api, ready=[POD, addresses.POD2])
    config = write_config(world.tmp / "beside.yaml", relay={"kind": "service", "launch": False})
    with Agents(world.node1, api, config) as agents:
        yield agents.start_ready()


def test_names_and_traffic_go_to_the_relay_service(world: World, beside: RunningAgent) -> None:
    """The node and its pods are served; no address, no process and no listener of ours is there."""
    node = world.node1
    assert names(node) == dict.fromkeys((addresses.REGISTRY, addresses.SITE), str(CLUSTER_IP))
    assert redirects(node) == _redirected_to(POD), "the pod on the same node"
    assert relay_addresses(node) == frozenset()
    assert living_processes(node, "haproxy") == []
    _assert_served(world)
    assert beside.plan().exit_code == 0


def test_dnat_moves_when_its_endpoint_goes(world: World, api: ClusterApi, beside: RunningAgent) -> None:
    """To the next ready pod and back, and no request is lost; a connection through the old one lives on."""
    node = world.node1
    with OpenConnection(world) as kept, new_connections(node), new_connections(world.pod1):
        kept.check("")
        for ready, target in (([addresses.POD2], addresses.POD2), ([POD, addresses.POD2], POD)):
            _endpoints(api, ready=ready)
            beside.await_that(
                lambda target=target: redirects(node) == _redirected_to(target), f"DNAT to {target}"
            )
            _assert_served(world)
        api.store.delete("endpointslices", f"{NAME}-node1", NAMESPACE)
        beside.await_that(
            lambda: redirects(node) == _redirected_to(addresses.POD2), "DNAT to the pod that is left"
        )
        kept.check("")


def _endpoints(api: ClusterApi, *, ready: Sequence[IPv4Address]) -> None:
    for pod, node in ((POD, "node1"), (addresses.POD2, "node2")):
        api.store.apply(
            objects.endpoint_slice(
                f"{NAME}-{node}",
                NAME,
                NAMESPACE,
                endpoints=[Endpoint(str(pod), node, ready=pod in ready)],
                ports={f"p{port}": target for port, target in PORTS.items()},
            )
        )


def _redirected_to(pod: IPv4Address) -> dict[str, str]:
    """Return the DNAT elements that lead to a pod; the load balancer's third port is not one of them."""
    return {f"{addresses.LOAD_BALANCER_IP}:{port}": f"{pod}:{target}" for port, target in PORTS.items()}


def _assert_served(world: World) -> None:
    for host in (world.node1, world.pod1):
        for url in (*_BY_NAME, _BY_ADDRESS):
            answer = host.curl(url)
            assert answer.ok, (host.name, url, answer)
