"""An installed hairpin-proxy: an HAProxy in a pod, which adds the PROXY header and does nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from tests.testbed import private_etc
from tests.testbed.addresses import INGRESS_CLUSTER_IP, LB, POD_CIDR1
from tests.testbed.namespaces import Host
from tests.testbed.services import ServicePort, ServiceRules
from tests.testbed.topology import run_ip
from tests.testbed.world import World

NAMESPACE = NAME = "hairpin-proxy"
CLUSTER_IP = IPv4Address("10.96.0.30")
POD = IPv4Address("10.244.1.3")
"""Of the pod on node1."""
PORTS = {80: 10080, 443: 10443}
"""The Service's, and the pods'."""
_GATEWAY = POD_CIDR1[1]

_CONFIGURATION = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
"""


def start_hairpin_proxy(pod: Host, directory: Path) -> None:
    """Run HAProxy as hairpin-proxy runs it; its configuration goes into the directory."""
    configuration = directory / f"hairpin-proxy-{pod.name}.cfg"
    sections = [
        f"listen port-{port}\n    bind :{target}\n    server ingress {INGRESS_CLUSTER_IP}:{port} send-proxy\n"
        for port, target in PORTS.items()
    ]
    configuration.write_text("\n".join([_CONFIGURATION, *sections]), encoding="ascii")
    process = pod.popen(["haproxy", "-db", "-f", configuration], log="hairpin-proxy")
    for target in PORTS.values():
        pod.await_port(target, process)


@contextmanager
def pod_on_node1(world: World) -> Iterator[Host]:
    """Provide one more pod on node1: a host behind it, reached over a cable of its own."""
    etc = world.tmp / "etc-pod3"
    private_etc.fill(etc, "pod3", (POD,), LB, world.certificates.ca)
    with Host("pod3", etc, world.logs) as host:
        cable = f"link add pod3 type veth peer name eth0 netns {host.pid}"
        run_ip(world.node1, [cable, "link set pod3 up", f"route add {POD} dev pod3"])
        # The node's other pod takes the whole range for its own cable's: the node answers for this pod there.
        world.node1.run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/pod1/proxy_arp"])
        own = [f"address add {POD}/32 dev eth0", "link set eth0 up", f"route add {_GATEWAY} dev eth0"]
        run_ip(host, [*own, f"route add default via {_GATEWAY}"])
        yield host


def service_rules(*pods: IPv4Address) -> ServiceRules:
    """Return the relay Service as kube-proxy knows it."""
    return ServiceRules(
        namespace=NAMESPACE,
        name=NAME,
        cluster_ips=(CLUSTER_IP,),
        load_balancer_ips=(),
        ports=tuple(ServicePort(f"p{port}", port, 0, target) for port, target in PORTS.items()),
        endpoints=pods,
    )
