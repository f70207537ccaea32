"""The testbed put together: `with World() as world: world.client.curl("https://site.example.test/")`."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from tests.isolation import missing_rights
from tests.testbed import addresses
from tests.testbed.addresses import Address, Family, Network, Place, Stack, address_of, within
from tests.testbed.certificates import Certificates, make_certificates
from tests.testbed.container_runtime import ContainerRuntime
from tests.testbed.errors import WorldError
from tests.testbed.ingress import IngressController, start_haproxy
from tests.testbed.inside import fill_etc, run_ip
from tests.testbed.kube_proxy import KubeProxy, KubeProxyKind
from tests.testbed.namespaces import Host
from tests.testbed.registry import Image, Registry
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.waiting import wait_until


class DnsServer:
    """dnsmasq on one host; it asks no other server, and knows nothing but its records."""

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Address],
        directory: Path,
        records: Mapping[str, Sequence[Address]],
    ) -> None:
        directory.mkdir()
        self.host = host
        self.addresses = tuple(addresses)
        self._file = directory / "records"
        self._write(records)
        self.process = host.popen(
            [
                *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file="),
                *("--no-resolv", "--no-hosts", "--local=/#/", f"--addn-hosts={self._file}"),
                *("--bind-interfaces", *(f"--listen-address={address}" for address in addresses)),
                "--except-interface=lo",
                *("--log-facility=-", "--log-queries"),
            ]
        )

    def await_ready(self) -> None:
        self.host.await_port(addresses.DNS_PORT, self.process, protocol="udp")

    def set_records(self, records: Mapping[str, Sequence[Address]]) -> None:
        """Answer from now on with these records and no others; returns when they are active."""
        before = self._times_read()
        self._write(records)
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self._times_read() > before, "dnsmasq reading its records again")

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)

    def times_asked(self, name: str) -> int:
        """Count the questions for a name, A and AAAA alike."""
        said = self.process.log.read_text(encoding="utf-8")
        return len(re.findall(rf"query\[AA?A?A?\] {re.escape(name)} ", said))

    def _write(self, records: Mapping[str, Sequence[Address]]) -> None:
        lines = [f"{address} {name}\n" for name, addresses in records.items() for address in addresses]
        self._file.write_text("".join(lines), encoding="ascii")

    def _times_read(self) -> int:
        return self.process.log.read_text(encoding="utf-8").count(f"read {self._file}")


KindOfHost = TypeVar("KindOfHost", bound=Host)

_PREFIX = "nodeagent-world-"
_BRIDGE = "fabric"
NODEAGENT_CONFIG = Path(__file__).parent / "nodeagent.yaml"
"""A configuration of nodeagent for this world."""
MANIFESTS = Path(__file__).parent / "manifests"
"""An IPv4 world as the Kubernetes API would describe it."""


class Node(Host):
    """A host that the cluster runs on; the world gives it its parts once its network exists."""

    kube_proxy: KubeProxy
    containers: ContainerRuntime


class World:
    """Everything, started by `with` and removed after it, however it ends.

    Its family is 4 (IPv6 is switched off on every host), 6 (no host has an IPv4 address beyond 127.0.0.1) or
    "dual".
    """

    tmp: Path
    logs: Path
    manifests: Path
    certificates: Certificates
    lb: Host
    client: Host
    node1: Node
    node2: Node
    pod1: Host
    pod2: Host
    dns: DnsServer
    registry: Registry
    ingress: tuple[IngressController, ...]

    def __init__(self, kube_proxy: KubeProxyKind = "nftables", family: Stack = 4) -> None:
        self.kind: KubeProxyKind = kube_proxy
        self.family: Stack = family
        self.families = addresses.families_of(family)
        self.service = INGRESS_SERVICE.within(self.families)
        self._stack = ExitStack()
        self._images = 0

    def __enter__(self) -> Self:
        if why := missing_rights():
            raise WorldError(why)
        try:
            self.tmp = self._stack.enter_context(_directory())
            self.logs = self.tmp / "logs"
            self.logs.mkdir()
            self.manifests = self.tmp / "manifests"
            write_manifests(self.manifests, self.families)
            self.certificates = make_certificates(self.tmp / "certificates", addresses.NAMES)
            self._start_hosts()
            self._start_programs()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (self.lb, self.client, self.node1, self.node2, self.pod1, self.pod2)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node1, self.node2)

    def push_image(self, size_mib: int) -> Image:
        self._images += 1
        return self.registry.push(f"image{self._images}", size_mib)

    def broken_headers(self) -> list[str]:
        return [line for controller in self.ingress for line in controller.broken_headers()]

    def address(self, host: Host, family: Family | None = None) -> Address:
        """A host's address in a family; without one, that by which others know it."""
        return address_of(host.name, family or self.families[0])

    @contextmanager
    def client_through(self, node: Node) -> Iterator[None]:
        """Let the client's traffic to the load balancer's address arrive at a node, unproxied.

        As from load balancers with direct server return: the client must send the PROXY header itself.
        """
        routes = [
            [f"{ip}/{ip.max_prefixlen}", "via", str(self.address(node, ip.version)), "dev", "eth0", "onlink"]
            for ip in self.service.load_balancer_ips
        ]
        for route in routes:
            self.client.run(["ip", "route", "add", *route])
        try:
            yield
        finally:
            for route in routes:
                self.client.run(["ip", "route", "del", *route])

    def _end(self) -> None:
        """Take everything down, which takes less than a second: a Ctrl-C meanwhile is heard afterwards."""
        ending = {signal.SIGINT, signal.SIGTERM}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        try:
            self._stack.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start_hosts(self) -> None:
        fabric = self._host(Host, "fabric")
        self.lb, self.client = self._host(Host, "lb"), self._host(Host, "client")
        self.node1, self.node2 = self._host(Node, "node1"), self._host(Node, "node2")
        self.pod1, self.pod2 = self._host(Host, "pod1"), self._host(Host, "pod2")
        everyone = (fabric, *self.hosts)
        for host in everyone:
            self._stack.callback(host.stop)
            host.launch()
        for host in everyone:
            host.await_ready()
        _lay_cables(fabric, {host.name: host for host in self.hosts}, self.families)

    def _host(self, kind: type[KindOfHost], name: str) -> KindOfHost:
        own = () if name == "fabric" else tuple(address_of(name, each) for each in self.families)
        etc = self.tmp / f"etc-{name}"
        nameserver = address_of("lb", self.families[0])
        fill_etc(etc, name, own, nameserver, self.certificates.ca)
        return kind(name, etc, self.logs, ipv6=6 in self.families)

    def _start_programs(self) -> None:
        """Launch every program, and only then wait for each."""
        records = dict.fromkeys(addresses.NAMES, self.service.load_balancer_ips)
        resolving = [self.address(self.lb, family) for family in self.families]
        self.dns = DnsServer(self.lb, resolving, self.tmp / "dns", records)
        upstream = (self.address(self.pod1), addresses.REGISTRY_PORT)
        self.registry = Registry(self.pod1, self.tmp / "registry", *upstream, addresses.REGISTRY)
        self.ingress = tuple(
            IngressController(pod, self.tmp / f"nginx-{pod.name}", self.certificates, upstream, self.families)
            for pod in (self.pod1, self.pod2)
        )
        cluster_cidrs = addresses.within(addresses.CLUSTER_CIDRS, self.families)
        nodes = {node: [self.address(node, family) for family in self.families] for node in self.nodes}
        for node, own in nodes.items():
            node.containers = ContainerRuntime(
                node, self.tmp / f"containerd-{node.name}", self.certificates.ca, addresses.REGISTRY
            )
            node.kube_proxy = KubeProxy(node, self.kind, own, cluster_cidrs, (self.service,))
            node.kube_proxy.sync()
        for pod, controller in zip((self.pod1, self.pod2), self.ingress, strict=True):
            for port in self.service.ports:
                pod.await_port(port.target_port, controller.process)
        # Last: a server whose first health check fails is down for some seconds.
        named = {node.name: own for node, own in nodes.items()}
        balancer = start_haproxy(self.lb, self.tmp / "haproxy", self.service, named)
        self.dns.await_ready()
        for port in self.service.ports:
            self.lb.await_port(port.port, balancer)


def _lay_cables(fabric: Host, hosts: Mapping[str, Host], families: tuple[Family, ...]) -> None:
    """Lay a cable from the fabric's bridge to every machine, and one from every pod to its node."""
    outer = [place for place in addresses.PLACES if not place.behind]
    pods = [place for place in addresses.PLACES if place.behind]
    lines = [f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
    for place in outer:
        lines.append(f"link add {place.host} type veth peer name eth0 netns {hosts[place.host].pid}")
        lines.append(f"link set {place.host} master {_BRIDGE} up")
    run_ip(fabric, lines)
    for place in (*outer, *pods):
        lines = [_add_address(address, "eth0") for address in within(place.addresses, families)]
        lines.append("link set eth0 up")
        lines += [
            f"route add {to} {f'via {via}' if via else 'dev eth0'}" for to, via in _routes(place, families)
        ]
        for pod in pods:
            if pod.behind == place.host:
                lines.append(f"link add {pod.host} type veth peer name eth0 netns {hosts[pod.host].pid}")
                for to, via in _routes(pod, families):
                    lines.append(_add_address(f"{via}/{24 if to.version == 4 else 64}", pod.host))
                lines.append(f"link set {pod.host} up")
        if place.host == "lb":
            in_front = within(INGRESS_SERVICE.load_balancer_ips, families)
            lines += [f"address add {address}/{address.max_prefixlen} dev lo" for address in in_front]
        run_ip(hosts[place.host], lines)


def _routes(place: Place, families: tuple[Family, ...]) -> list[tuple[Network, Address | None]]:
    return [(to, via) for to, via in place.routes if to.version in families]


def _add_address(address: object, device: str) -> str:
    # No other host is on the cable, so an IPv6 address needs no second of duplicate detection first.
    return f"address add {address} dev {device}" + (" nodad" if ":" in str(address) else "")


def write_manifests(
    directory: Path, families: Sequence[Family], cluster_ips: Sequence[Address] | None = None
) -> None:
    """Write the objects of manifests/ with the addresses of these families, or other ClusterIPs."""
    directory.mkdir(exist_ok=True)
    for source in MANIFESTS.glob("*.yaml"):
        objects = list(yaml.load_all(source.read_text("utf-8"), yaml.CSafeLoader))
        for found in objects:
            _readdress(found, families, cluster_ips or INGRESS_SERVICE.within(families).cluster_ips)
        (directory / source.name).write_text(yaml.safe_dump_all(objects), encoding="utf-8")


def _readdress(found: dict[str, Any], families: Sequence[Family], cluster_ips: Sequence[Address]) -> None:
    in_front = INGRESS_SERVICE.within(families).load_balancer_ips
    mode = {"ipMode": "VIP"} if found["kind"] == "Service" else {}
    if found["kind"] == "Node":
        name = found["metadata"]["name"]
        ranges = [str(network) for network in within(addresses.POD_CIDRS[name], families)]
        found["spec"] |= {"podCIDR": ranges[0], "podCIDRs": ranges}
        others = [each for each in found["status"]["addresses"] if each["type"] != "InternalIP"]
        own = [{"type": "InternalIP", "address": str(address_of(name, each))} for each in families]
        found["status"]["addresses"] = [*own, *others]
    elif found["kind"] in {"Service", "Ingress"}:
        found["status"] = {"loadBalancer": {"ingress": [{"ip": str(each), **mode} for each in in_front]}}
    if found["kind"] == "Service":
        found["spec"] |= {
            "clusterIP": str(cluster_ips[0]),
            "clusterIPs": [str(address) for address in cluster_ips],
            "ipFamilies": [f"IPv{address.version}" for address in cluster_ips],
            "ipFamilyPolicy": "SingleStack" if len(cluster_ips) == 1 else "PreferDualStack",
        }


@contextmanager
def _directory() -> Iterator[Path]:
    """Make the world's directory, with the process's id in its name; remove those of killed processes."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", old.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            shutil.rmtree(old, ignore_errors=True)  # another world may be at it, too
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)
