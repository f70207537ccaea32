"""The cloud's load balancer, which puts a PROXY header before each connection, and the ingress controller.

Vagrant's virtual machines have the same configurations: Python's standard library is enough to write them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed.addresses import NAMES, REGISTRY, bracketed
from tests.testbed.services import INGRESS_SERVICE, ON_HOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.testbed.addresses import Address, Family
    from tests.testbed.certificates import Certificates
    from tests.testbed.namespaces import Host
    from tests.testbed.processes import Process
    from tests.testbed.services import ServiceRules

_HEAD = Path(__file__).with_name("haproxy.cfg").read_text("utf-8")
CHALLENGE = "/.well-known/acme-challenge/"
"""Where an ACME server, and cert-manager before it, looks for the key of the token that follows."""
KEY_SUFFIX = ".key-of-the-testbed"
"""What follows the token in that key."""


def start_haproxy(
    host: Host, directory: Path, service: ServiceRules, nodes: Mapping[str, Sequence[Address]]
) -> Process:
    """Start HAProxy on the Service's load balancer addresses, with the nodes' NodePorts behind it."""
    directory.mkdir()
    (directory / "haproxy.cfg").write_text(haproxy_configuration(service, nodes), encoding="ascii")
    return host.popen([*ON_HOST, "haproxy", "-db", "-f", directory / "haproxy.cfg"])


def haproxy_configuration(service: ServiceRules, nodes: Mapping[str, Sequence[Address]]) -> str:
    lines = [_HEAD]
    for port in service.ports:
        for address in service.load_balancer_ips:
            lines.append(f"listen {port.name}-ipv{address.version}")
            lines.append(f"    bind {bracketed(address)}:{port.port}")
            lines += [
                f"    server {name} {bracketed(_behind(address, addresses, service))}:{port.node_port}"
                " send-proxy check check-send-proxy inter 1s"
                for name, addresses in nodes.items()
            ]
    return "\n".join(lines) + "\n"


def _behind(front: Address, node: Sequence[Address], service: ServiceRules) -> Address:
    """A node's address of the front's family; of the other where NodePorts answer in that one alone."""
    families = {address.version for address in service.cluster_ips}
    answering = [address for address in node if address.version in families]
    return next((address for address in answering if address.version == front.version), answering[0])


class IngressController:
    """One pod's nginx, which has the registry (its address and port) behind the registry's name."""

    def __init__(
        self,
        host: Host,
        directory: Path,
        certificates: Certificates,
        registry: tuple[Address, int],
        families: Sequence[Family],
    ) -> None:
        directory.mkdir()
        self.error_log = host.log_file("nginx-error")
        logs = (self.error_log, host.log_file("nginx-access"))
        text = nginx_configuration(directory, *logs, certificates, registry, families=families)
        (directory / "nginx.conf").write_text(text, encoding="ascii")
        self.process = host.popen(["nginx", "-c", directory / "nginx.conf", "-e", self.error_log])

    def broken_headers(self) -> list[str]:
        lines = self.error_log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "broken header" in line]


def nginx_configuration(  # noqa: PLR0913 - each is one thing that the file names
    directory: Path,
    error_log: Path,
    access_log: Path,
    certificates: Certificates,
    registry: tuple[Address, int],
    *,
    families: Sequence[Family] = (4,),
) -> str:
    """Write the controller's nginx.conf; the directory is for temporary files."""
    listens = [
        f"        listen {'0.0.0.0' if family == 4 else '[::]'}:{port.target_port}"
        f"{'' if port.name == 'http' else ' ssl'} proxy_protocol;"
        for port in INGRESS_SERVICE.ports
        for family in families
    ]
    values = {
        "DIRECTORY": directory,
        "ERROR_LOG": error_log,
        "ACCESS_LOG": access_log,
        "CERTIFICATE": certificates.server,
        "KEY": certificates.server_key,
        "LISTEN": "\n".join(listens),
        "SITES": " ".join(name for name in NAMES if name != REGISTRY),
        "CHALLENGE": CHALLENGE,
        "SUFFIX": KEY_SUFFIX,
        "REGISTRY": REGISTRY,
        "UPSTREAM": f"{bracketed(registry[0])}:{registry[1]}",
    }
    text = Path(__file__).with_name("nginx.conf").read_text("utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda name: str(values[name[1]]), text)
