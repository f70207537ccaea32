"""The cloud's load balancer: an HAProxy that puts a PROXY header before every connection it passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.testbed.addresses import bracketed
from tests.testbed.services import ON_HOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host
    from tests.testbed.services import ServiceRules

_HEAD = """\
global
    maxconn 4096
defaults
    mode tcp
    timeout connect 3s
    timeout client 60s
    timeout server 60s
"""


class LoadBalancer:
    """HAProxy on the Service's load balancer addresses, with the nodes' NodePorts behind it."""

    def __init__(
        self, host: Host, directory: Path, service: ServiceRules, nodes: Mapping[str, Sequence[Address]]
    ) -> None:
        directory.mkdir()
        self.host = host
        self._service = service
        configuration = directory / "haproxy.cfg"
        configuration.write_text(haproxy_configuration(service, nodes), encoding="ascii")
        self.process = host.popen([*ON_HOST, "haproxy", "-db", "-f", configuration])

    def await_ready(self) -> None:
        """Wait until it listens on every port of the Service."""
        for port in self._service.ports:
            self.host.await_port(port.port, self.process)


def haproxy_configuration(service: ServiceRules, nodes: Mapping[str, Sequence[Address]]) -> str:
    """Write the haproxy.cfg of a Service's load balancer; the machines of Vagrant have the same one."""
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
