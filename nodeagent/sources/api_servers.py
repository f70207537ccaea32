"""This node's endpoints of the API server, which must never be redirected."""

import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from msgspec import Struct
from msgspec.structs import replace

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.sources.objects.api import values_at
from nodeagent.yaml_loader import load

KUBELET_KUBECONFIGS = (
    Path("/etc/kubernetes/kubelet.conf"),  # kubeadm
    Path("/host/etc/kubernetes/kubelet.conf"),  # the same, from within the DaemonSet's pod
    Path("/var/lib/kubelet/kubeconfig"),  # EKS, kops
    Path("/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    Path("/var/lib/rancher/rke2/agent/kubelet.kubeconfig"),
)


class ApiServers(Struct, frozen=True):
    """Endpoints and names under which this node knows the API server; `notes` say what stayed unknown.

    `service` are those of `endpoints` that a pod's environment names: Service default/kubernetes, as a rule.
    """

    endpoints: frozenset[Endpoint] = frozenset()
    names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    service: frozenset[Endpoint] = frozenset()

    def with_published(self, endpoints: frozenset[Endpoint]) -> "ApiServers":
        """Add EndpointSlice default/kubernetes; a note says if only a Service's address is known in a pod."""
        known = self.endpoints | endpoints
        notes = self.notes
        if self.service and all(server in self.service or server.address.is_loopback for server in known):
            note = (
                "the API server's real address is unknown: neither EndpointSlice default/kubernetes, as far "
                "as it can be read, nor a kubeconfig of this node's kubelet names one. Only its Service's "
                "address is protected from redirects; add the real ones to loadBalancers.refuse"
            )
            notes += (note,)
        return replace(self, endpoints=known, notes=notes)


class ServerLookups:
    """Looks up API servers' names by the C library, which takes up to a minute if no DNS server answers.

    A caller waits a little for a name's first lookup, less for a later one, and not again while one goes on.
    What a name resolved to stays known until DNS answers (fail static). Not for several threads at a time.
    """

    def __init__(self, first_seconds: float = 10.0, again_seconds: float = 1.0) -> None:
        self._first_seconds = first_seconds
        self._again_seconds = again_seconds
        self._threads: dict[str, threading.Thread] = {}
        self._addresses: dict[str, tuple[IPAddress, ...]] = {}
        self._failures: dict[str, str] = {}

    def look_up(self, names: Collection[str]) -> dict[str, tuple[tuple[IPAddress, ...], str]]:
        """Look up these names at the same time, until it is done or has taken too long.

        Return each name's addresses by the last answer, and why there is no newer one; empty if there is.
        """
        began = time.monotonic()
        waiting = []
        for name in names:
            before = self._threads.get(name)
            if before is None or not before.is_alive():
                thread = threading.Thread(target=self._look_up, args=(name,), name="api-name", daemon=True)
                self._threads[name] = thread
                thread.start()
                waiting.append((thread, self._again_seconds if before else self._first_seconds))
        for thread, seconds in waiting:
            thread.join(max(0.0, began + seconds - time.monotonic()))
        unanswered = {name: "no answer yet" for name in names if self._threads[name].is_alive()}
        failures = self._failures | unanswered
        return {name: (self._addresses.get(name, ()), failures.get(name, "")) for name in names}

    def _look_up(self, name: str) -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a label that IDNA can't encode
            self._failures[name] = str(error)
        else:
            self._addresses[name] = tuple(dict.fromkeys(ip_address(answer[4][0]) for answer in answers))
            self._failures.pop(name, None)


def find_api_servers(
    kubeconfigs: Iterable[Path] = (),
    environment: Mapping[str, str] = os.environ,
    servers: Iterable[tuple[str, int]] = (),
    lookups: ServerLookups | None = None,
) -> ApiServers:
    """Read the kubeconfigs given and kubelet's own, and KUBERNETES_SERVICE_HOST and _PORT (in a pod).

    `servers` are host and port of the servers in use. A missing kubeconfig, or one that this user may not
    read, is ignored: a dry run needs neither. A daemon keeps `lookups`: its passes don't wait for DNS.
    """
    hosts = set(servers)
    service: set[tuple[str, int]] = set()
    notes: list[str] = []
    if environment.get("KUBERNETES_SERVICE_HOST"):
        port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
        if port.isdecimal():
            service.add((environment["KUBERNETES_SERVICE_HOST"], int(port)))
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
    api = _resolve(hosts | service, lookups or ServerLookups(), notes)
    return replace(
        api,
        service=frozenset(
            endpoint for endpoint in api.endpoints if (str(endpoint.address), endpoint.port) in service
        ),
    )


def _servers(text: str) -> list[str]:
    """Return the server of every cluster in a kubeconfig, as written."""
    return [str(server) for server in values_at(load(text), "clusters[].cluster.server") if server]


def _host_and_port(server: str) -> tuple[str, int]:
    """Return host and port of a URL, or of a bare host:port (as client-go). Raises ValueError."""
    url = urlsplit(server if "//" in server else f"//{server}")
    if not url.hostname:
        raise ValueError("it names no host")
    return url.hostname.removesuffix("."), url.port or {"http": 80}.get(url.scheme, 443)


def _resolve(hosts: set[tuple[str, int]], lookups: ServerLookups, notes: list[str]) -> ApiServers:
    endpoints: set[Endpoint] = set()
    ports: dict[str, list[int]] = {}
    for host, port in sorted(hosts):
        try:
            endpoints.add(Endpoint(ip_address(host), port))
        except ValueError:
            ports.setdefault(host.lower(), []).append(port)
    for name, (addresses, failure) in lookups.look_up(ports).items():
        endpoints |= {Endpoint(address, port) for address in addresses for port in ports[name]}
        if failure:
            consequence = "its last known addresses count" if addresses else "its address is unknown"
            notes.append(f"the API server's name {name} can't be resolved ({failure}): {consequence}")
    return ApiServers(frozenset(endpoints), frozenset(ports), tuple(notes))
