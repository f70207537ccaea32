"""This node's names and addresses, and its endpoint of the API server, which must never be redirected."""

import os
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress

# Documentation addresses (RFC 5737, RFC 3849): the kernel only looks up its route, nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD_PORT = 9


def default_node_name() -> str:
    """Return the name under which the kubelet registers a node by default.

    The host name in lower case.
    """
    return os.uname().nodename.lower()


def own_names(node_name: str) -> frozenset[str]:
    """Return the names of this node itself: its Node's name and its host name, long and short."""
    names = {node_name.lower(), os.uname().nodename.lower()}
    return frozenset(names | {name.partition(".")[0] for name in names})


def source_addresses() -> tuple[IPAddress, ...]:
    """Return the source address that the kernel picks for connections to other hosts, at most one per family.

    A family without a route is left out.
    """
    found = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, _DISCARD_PORT))
                found.append(ip_address(probe.getsockname()[0]))
        except OSError:
            continue  # No route, or the family is switched off: that family has no source address.
    return tuple(found)


# Whether IPv6 is switched off on this node, and what switches it off. EFFECTS: reads /proc.


_ROOT = Path("/proc")


def ipv6_switched_off(proc: Path = _ROOT) -> str:
    """Return what switches IPv6 off in this thread's network namespace, for a person; empty if it is on.

    A kernel booted with `ipv6.disable=1` has none of IPv6's files. The sysctl `all/disable_ipv6` removes the
    addresses from every interface and prevents new ones (Documentation/networking/ip-sysctl.rst).
    """
    if not (proc / "thread-self/net/if_inet6").exists():
        return "ipv6.disable=1, or a kernel without IPv6"
    try:
        value = (proc / "sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii")
    except OSError:
        return ""  # /proc/sys is hidden from this process: the addresses tell
    return "" if value.strip() == "0" else "sysctl net.ipv6.conf.all.disable_ipv6"


# This node's endpoint of the API server: the only one that must never be redirected.


KUBELET_KUBECONFIGS = (
    Path("/etc/kubernetes/kubelet.conf"),  # kubeadm
    Path("/host/etc/kubernetes/kubelet.conf"),  # the same, from within the DaemonSet's pod
    Path("/var/lib/kubelet/kubeconfig"),  # EKS, kops
    Path("/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    Path("/var/lib/rancher/rke2/agent/kubelet.kubeconfig"),
)


class ApiServers(Struct, frozen=True):
    """Endpoints and names under which this node knows the API server; `notes` say what stayed unknown."""

    endpoints: frozenset[Endpoint] = frozenset()
    names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def find_api_servers(
    kubeconfigs: Iterable[Path] = (),
    environment: Mapping[str, str] = os.environ,
    servers: Iterable[tuple[str, int]] = (),
) -> ApiServers:
    """Read the kubeconfigs given and kubelet's own, and KUBERNETES_SERVICE_HOST and _PORT (in a pod).

    `servers` are host and port of servers known from elsewhere: the one in use. A missing kubeconfig, or one
    that this user may not read, is ignored: a dry run needs neither.
    """
    hosts = set(servers)
    notes: list[str] = []
    if environment.get("KUBERNETES_SERVICE_HOST"):
        port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
        if port.isdecimal():
            hosts.add((environment["KUBERNETES_SERVICE_HOST"], int(port)))
        else:
            notes.append(
                f"KUBERNETES_SERVICE_PORT={port!r} is not a port: the API server is not protected by it"
            )
    for path in (*kubeconfigs, *KUBELET_KUBECONFIGS):
        try:
            for url in _servers(path.read_text(encoding="utf-8")):
                try:
                    hosts.add(_host_and_port(url))
                except ValueError as error:
                    notes.append(f"{path}: server {url!r}: {error}: that API server is not protected")
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            notes.append(f"{path}: can't be read ({error}): the API server it names is not protected by it")
    return _resolve(hosts, notes)


def _servers(text: str) -> list[str]:
    """Return the server of every cluster in a kubeconfig, as written. Pure."""
    document = yaml.safe_load(text)
    clusters = document.get("clusters") if isinstance(document, dict) else None
    if not isinstance(clusters, list):
        return []
    entries = [entry.get("cluster") for entry in clusters if isinstance(entry, dict)]
    servers = (entry.get("server") for entry in entries if isinstance(entry, dict))
    return [str(server) for server in servers if server]


def _host_and_port(server: str) -> tuple[str, int]:
    """Return host and port of a URL, or of a bare host:port, which client-go accepts, too. Pure.

    Raises ValueError.
    """
    url = urlsplit(server if "//" in server else f"//{server}")
    if not url.hostname:
        raise ValueError("it names no host")
    return url.hostname.removesuffix("."), url.port or {"http": 80}.get(url.scheme, 443)


def _resolve(hosts: set[tuple[str, int]], notes: list[str]) -> ApiServers:
    endpoints: set[Endpoint] = set()
    names: set[str] = set()
    for host, port in sorted(hosts):
        try:
            endpoints.add(Endpoint(ip_address(host), port))
            continue
        except ValueError:
            names.add(host.lower())
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            # UnicodeError: a label that IDNA can't encode.
            notes.append(f"the API server's name {host} can't be resolved ({error}): its address is unknown")
            continue
        endpoints |= {Endpoint(ip_address(answer[4][0]), port) for answer in answers}
    return ApiServers(frozenset(endpoints), frozenset(names), tuple(notes))
