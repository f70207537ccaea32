"""Facts about this node: those of its components, and its names and addresses, data plane and Service proxy.

Everything is only read. Without root, some of it is denied, and the result says so.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nodeagent.components.hosts.block import hosts_fields
from nodeagent.components.node import ON_LINUX, ActualState
from nodeagent.config.options import Config, HostsOptions
from nodeagent.errors import ApplyError, NodeagentError, one_line
from nodeagent.linux.programs import find_program, run_program
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import Facts, InterfaceAddress, UserHostsLine
from nodeagent.model.objects import Snapshot
from nodeagent.plan.balancers.this_node import doubtful_endpoints
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.upstream_dns import ask_upstream

# Documentation addresses (RFC 5737, RFC 3849): the kernel only looks up its route, nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD_PORT = 9


def default_node_name() -> str:
    """Return the name under which the kubelet registers a node by default: the host name in lower case."""
    return os.uname().nodename.lower()


def own_names(node_name: str) -> frozenset[str]:
    """Return the names of this node itself: its Node's name and its host name, long and short."""
    names = {node_name.lower(), os.uname().nodename.lower()}
    return frozenset(names | {name.partition(".")[0] for name in names})


def source_addresses() -> tuple[IPAddress, ...]:
    """Return the source address of connections to other hosts, of each family that has a route."""
    addresses = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, _DISCARD_PORT))
                addresses.append(ip_address(probe.getsockname()[0]))
        except OSError:
            continue  # No route, or the family is switched off: that family has no source address.
    return tuple(addresses)


def ipv6_switched_off(device: str, proc: Path = Path("/proc")) -> str:
    """Return what keeps this device of the thread's network namespace from having IPv6 addresses, if any.

    A kernel booted with `ipv6.disable=1` has none of IPv6's files. A device that does not exist yet begins
    with the sysctl `disable_ipv6` of `default` (Documentation/networking/ip-sysctl.rst).
    """
    if not (proc / "thread-self/net/if_inet6").exists():
        return "ipv6.disable=1, or a kernel without IPv6"
    settings = proc / "sys/net/ipv6/conf"
    name = device if (settings / device).exists() else "default"
    try:
        value = (settings / name / "disable_ipv6").read_text(encoding="ascii")
    except OSError:
        return ""  # /proc/sys is hidden from this process: the addresses tell
    return "" if value.strip() == "0" else f"sysctl net.ipv6.conf.{name}.disable_ipv6"


_OWN_HOSTS = Path("/etc/hosts")


def resolve(options: HostsOptions, name: str) -> tuple[IPAddress, ...]:
    """Return a name's addresses as the node's programs try them; empty for none, whatever the reason.

    In a container, the node's hosts file is not this process's own, and is read first. The container's own is
    the kubelet's copy of it, made when it started: a name that only the copy has is looked up in DNS.
    """
    hosts_file = Path(options.file)
    if hosts_file != _OWN_HOSTS:
        if addresses := _in_hosts_file(name, hosts_file):
            return addresses
        if any(not address.is_loopback for address in _in_hosts_file(name, _OWN_HOSTS)):
            return ask_upstream(options)(name).addresses
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a label that IDNA can't encode
        return ()
    return tuple(dict.fromkeys(ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers))


def _in_hosts_file(name: str, file: Path) -> tuple[IPAddress, ...]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return ()
    addresses: dict[IPAddress, None] = {}
    for address, names in map(hosts_fields, lines):
        if name.lower() in names:
            with suppress(ValueError):  # not an address: such a line sets nothing
                addresses[ip_address(address)] = None
    return tuple(addresses)


# Since 1.13, Cilium pins its socket load balancer's programs there (pkg/socketlb).
_SOCKET_BALANCER = "sys/fs/bpf/cilium/socketlb"
_CALICO_EBPF = "sys/class/net/bpfin.cali"
_CNI_SIGNS = (
    ("Cilium", "sys/class/net/cilium_host"),
    ("Calico's eBPF", _CALICO_EBPF),
    ("kube-router", "sys/class/net/kube-bridge"),
    ("OVN-Kubernetes", "sys/class/net/ovn-k8s-mp0"),
    ("Antrea", "sys/class/net/antrea-gw0"),
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What decides whether a fix can take effect on this node.

    `cni` are CNIs that handle Services themselves, each with the evidence; `socket_balancer` is the evidence
    of a load balancer that rewrites `connect()`, empty for none, None if that can't be seen from here;
    `name_order` is that of nsswitch.conf.
    """

    cni: tuple[tuple[str, str], ...]
    socket_balancer: str | None
    name_order: tuple[str, ...]


def read_environment(hosts_file: Path, root: Path = Path("/")) -> Environment:
    """Read, next to `hosts.file`, which is in the node's /etc wherever that is mounted, and below `root`."""
    return Environment(
        cni=tuple((name, f"/{sign}") for name, sign in _CNI_SIGNS if (root / sign).exists()),
        socket_balancer=_socket_balancer(root),
        name_order=_name_order(hosts_file.parent / "nsswitch.conf"),
    )


def _socket_balancer(root: Path) -> str | None:
    bpf = root / "sys/fs/bpf"
    try:
        if (root / _SOCKET_BALANCER).exists():
            return f"/{_SOCKET_BALANCER}"
    except PermissionError:
        return None
    # A kernel without BPF has no such directory. Only root can read bpffs, and a container sees it only if it
    # is mounted there: else, a missing entry means nothing. Calico's programs leave no trace in it.
    visible = not bpf.exists() or (bpf.is_mount() and os.access(bpf, os.R_OK | os.X_OK))
    return "" if visible and not (root / _CALICO_EBPF).exists() else None


def _name_order(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()  # musl has none: it reads the hosts file first, always
    for line in lines:
        key, _, rest = line.partition("#")[0].partition(":")
        if key.strip() == "hosts":
            return tuple(word for word in rest.split() if not word.startswith("["))
    return ()


# kube-proxy is recognized by its own names: the map `service-ips` of the nftables mode (proxier.go in
# pkg/proxy/nftables), the chain `KUBE-SERVICES` of the iptables mode, in nf_tables or in legacy xtables, and
# the addresses on `kube-ipvs0` of the ipvs mode; kube-router's are on `kube-dummy-if`. Data planes without
# such rules (Cilium's BPF maps, OVN's and Antrea's flows) can't be seen here.
Mode = Literal["nftables", "iptables", "ipvs"]
_IPVS_DEVICE = "kube-ipvs0"
_IPVS_INTERFACES = frozenset({_IPVS_DEVICE, "kube-dummy-if"})
_RULES_SECONDS = 10.0
_ABSENT = "No such file or directory"
# In nft's JSON, an address is a separate string, in a map's key or a rule. Protocol and port follow.
_IN_JSON = re.compile(
    r'"((?:\d+\.){3}\d+|[0-9a-f]*:[0-9a-f:.]*)"'
    r'(?:, "(\w+)", (\d+)|'
    r'\}\}(?:(?!"rule":).){0,1000}?"protocol": "(\w+)", "field": "dport"\}\}, "right": (\d+))?'
)
_IN_RULES = re.compile(
    r"^-A KUBE-SERVICES(?: \S+)*? -d ([0-9a-f.:]+)/(?:32|128) (?:-p (\w+) (?:.* )?--dport (\d+) )?",
    re.MULTILINE,
)
_RULES: tuple[tuple[Mode, str, str, re.Pattern[str]], ...] = (
    ("nftables", "table kube-proxy in nftables", "nft -j list map {} kube-proxy service-ips", _IN_JSON),
    ("iptables", "chain KUBE-SERVICES of iptables-nft", "nft -j list chain {} nat KUBE-SERVICES", _IN_JSON),
    ("iptables", "chain KUBE-SERVICES of iptables-legacy", "{}tables-legacy-save -t nat", _IN_RULES),
)
"""kube-proxy's modes, the evidence, what lists its rules of a family, and how Services are named there."""
_ANY_PORT = 0
"""A rule whose port is not seen counts for every port."""


def caught_addresses(
    wanted: Iterable[Endpoint],
    standing: Iterable[InterfaceAddress],
    earlier: frozenset[IPAddress] = frozenset(),
) -> tuple[frozenset[IPAddress], tuple[str, ...]]:
    """Return at which of `wanted` this node's Service proxy short-circuits, and what could not be read.

    If not all can be read, what was caught `earlier` still counts (fail static). A rule for another port of
    the address shows nothing: anyone who can write a Service can have one made, by `externalIPs`.
    """
    looked_for = frozenset(wanted)
    if not looked_for:
        return frozenset(), ()
    kube_proxy = read_kube_proxy(standing)
    caught = {
        endpoint.address
        for endpoint in looked_for
        if kube_proxy.endpoints & {endpoint, Endpoint(endpoint.address, _ANY_PORT)}
    }
    if not kube_proxy.unreadable:
        return frozenset(caught), ()
    note = f"ipMode: Proxy is believed where this node's rules can't be read: {kube_proxy.unreadable}"
    return earlier | caught, (note,)


def _endpoints(matches: Iterable[tuple[str, ...]]) -> Iterator[Endpoint]:
    """Yield what rules name, each an address, and maybe a protocol and a port, as far as it is TCP."""
    for address, *rest in matches:
        protocol, port = [*filter(None, rest), "", ""][:2]
        if protocol in {"", "tcp"}:
            yield Endpoint(ip_address(address), int(port or _ANY_PORT))


def _listed(family: str, command: list[str]) -> str | None:
    """Return what the program prints, None without such rules of this family. Raises NodeagentError."""
    legacy = "-legacy-" in command[0]
    if legacy and not _has_legacy_nat(family):
        return None
    program = find_program(command[0])
    if program is None:
        raise NodeagentError(f"there is no {command[0]} program")
    try:
        completed = run_program([program, *command[1:]], _RULES_SECONDS)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NodeagentError(f"{command[0]}: {one_line(error)}") from error
    if completed.returncode == 0:
        rules = completed.stdout.decode(errors="replace")
        return rules if not legacy or ":KUBE-SERVICES " in rules else None
    message = one_line(completed.stderr.decode(errors="replace").partition("\n")[0])
    if _ABSENT in message:
        return None
    raise NodeagentError(f"{' '.join(command)}: {message}")


def _has_legacy_nat(family: str) -> bool:
    """Whether the kernel has legacy xtables' nat table: iptables-legacy-save would create it."""
    tables = f"{family}_tables_names"
    try:
        return "nat" in Path("/proc/self/net", tables).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NodeagentError(f"/proc/net/{tables}: {error.strerror}") from error


class KubeProxy(Struct, frozen=True):
    """kube-proxy's modes with rules or devices here, each with the evidence: usually one.

    `endpoints` are what these translate, kube-router's device included.
    """

    modes: tuple[tuple[Mode, str], ...] = ()
    endpoints: frozenset[Endpoint] = frozenset()
    unreadable: str = ""

    @property
    def held(self) -> frozenset[IPAddress] | None:
        """The addresses of all of them; None if some could not be read."""
        return None if self.unreadable else frozenset(endpoint.address for endpoint in self.endpoints)


def read_kube_proxy(standing: Iterable[InterfaceAddress]) -> KubeProxy:
    """Read the rules, which only root can, and see which of the `standing` addresses are on its devices."""
    by_mode: dict[tuple[Mode, str], frozenset[Endpoint]] = {}
    unreadable: dict[str, None] = {}
    for mode, evidence, command, pattern in _RULES:
        try:
            texts = [_listed(family, command.format(family).split()) for family in ("ip", "ip6")]
        except NodeagentError as error:
            unreadable[str(error)] = None
            continue
        if texts != [None, None]:
            by_mode[mode, evidence] = frozenset(_endpoints(pattern.findall("\n".join(filter(None, texts)))))
    on_devices = [address for address in standing if address.interface in _IPVS_INTERFACES]
    modes = [*by_mode]
    if any(address.interface == _IPVS_DEVICE for address in on_devices):
        # In mode ipvs, the chain KUBE-SERVICES of iptables only marks what is masqueraded.
        modes = [pair for pair in modes if pair[0] != "iptables"]
        modes.append(("ipvs", f"addresses on {_IPVS_DEVICE}"))
    devices = {Endpoint(address.address, _ANY_PORT) for address in on_devices}
    return KubeProxy(tuple(modes), frozenset(devices).union(*by_mode.values()), "; ".join(unreadable))


def read_facts(  # noqa: PLR0913, PLR0917 - each a source of facts of its own
    node_name: str,
    config: Config,
    snapshot: Snapshot,
    actual: ActualState,
    api: ApiServers,
    earlier: Facts | None = None,
) -> Facts:
    """Read what changes seldom and costs most to read; an ordinary user can.

    The rules for Services (which need root) are read only if `snapshot` has a load balancer for which they
    matter. Elsewhere than on Linux, only the objects are known.
    """
    api = api.with_published(snapshot.api_servers)
    facts = Facts(
        node_name=node_name,
        node_names=own_names(node_name),
        api_servers=api.endpoints,
        api_server_names=api.names,
        notes=api.notes,
    )
    if not ON_LINUX:
        return facts
    relay_networks = (config.relay.ipv4, config.relay.ipv6)
    addresses = actual.addresses.state().addresses
    before = earlier.short_circuited if earlier else frozenset[IPAddress]()
    caught, notes = caught_addresses(doubtful_endpoints(snapshot, config), addresses, before)
    return replace(
        facts,
        addresses=addresses,
        source_addresses=tuple(
            ip for ip in source_addresses() if not any(ip in network for network in relay_networks)
        ),
        port_holders=actual.components.relay.port_holders(),
        ipv6_off=ipv6_switched_off(config.relay.interface if config.relay.kind == "node" else "lo"),
        short_circuited=caught,
        notes=(*api.notes, *notes),
    )


def with_hosts_file(
    facts: Facts, config: Config, actual: ActualState, *, adopt: bool, wanted: tuple[HostsLine, ...] = ()
) -> Facts:
    """Return the facts with the names of the hosts file as it is now; if it can't be read, they are unknown.

    A block as it was written for the lines that were `wanted` last adds nothing.
    """
    standing = facts.standing_names
    user_names: Mapping[str, UserHostsLine] = {}
    with suppress(ApplyError):
        state = actual.hosts.state()
        user_names = state.user_names
        if config.hosts.verify == "dns" and (not wanted or state.lines is not wanted):
            nothing = frozenset[IPAddress]()
            added = {name: ips | standing.get(name, nothing) for name, ips in state.own_names.items()}
            standing = {**standing, **added}
    if adopt:
        user_names = {name: line for name, line in user_names.items() if not line.by_hairpin_proxy}
    return replace(facts, user_names=user_names, standing_names=standing)
