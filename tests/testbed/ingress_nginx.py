"""The ingress controller: an nginx in a pod that accepts nothing without a PROXY header."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed.addresses import NAMES, REGISTRY, bracketed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.testbed.addresses import Address, Family
    from tests.testbed.certificates import Certificates
    from tests.testbed.namespaces import Host

_HTTP_PORTS = (80,)
_TLS_PORTS = (443, 8443)

CHALLENGE = "/.well-known/acme-challenge/"
"""Where an ACME server, and cert-manager before it, looks for the key of the token that follows."""
KEY_SUFFIX = ".key-of-the-testbed"
"""What follows the token in that key."""


class IngressController:
    """One pod's nginx."""

    def __init__(
        self,
        host: Host,
        directory: Path,
        certificates: Certificates,
        registry: tuple[Address, int],
        families: Sequence[Family],
    ) -> None:
        directory.mkdir()
        self.host = host
        self.error_log = host.log_file("nginx-error")
        configuration = directory / "nginx.conf"
        logs = (self.error_log, host.log_file("nginx-access"))
        configuration.write_text(
            nginx_configuration(directory, *logs, certificates, registry, families=families), encoding="ascii"
        )
        self.process = host.popen(["nginx", "-c", configuration, "-e", self.error_log])

    def await_ready(self) -> None:
        """Wait until it listens on every port."""
        for port in (*_HTTP_PORTS, *_TLS_PORTS):
            self.host.await_port(port, self.process)

    def broken_headers(self) -> list[str]:
        """List the error log's lines about connections that came without a PROXY header."""
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
    """Write the controller's nginx.conf; the directory is for temporary files. Vagrant's is the same."""
    everywhere = [{4: "0.0.0.0", 6: "[::]"}[family] for family in families]
    sockets = [f"{address}:{port} proxy_protocol" for port in _HTTP_PORTS for address in everywhere]
    sockets += [f"{address}:{port} ssl proxy_protocol" for port in _TLS_PORTS for address in everywhere]
    values = {
        "DIRECTORY": directory,
        "ERROR_LOG": error_log,
        "ACCESS_LOG": access_log,
        "CERTIFICATE": certificates.server,
        "KEY": certificates.server_key,
        "LISTEN": "\n".join(f"        listen {each};" for each in sockets),
        "SITES": " ".join(name for name in NAMES if name != REGISTRY),
        "CHALLENGE": CHALLENGE,
        "SUFFIX": KEY_SUFFIX,
        "REGISTRY": REGISTRY,
        "UPSTREAM": f"{bracketed(registry[0])}:{registry[1]}",
    }
    text = Path(__file__).with_name("nginx.conf").read_text("utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda name: str(values[name[1]]), text)
