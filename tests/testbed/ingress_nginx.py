"""The ingress controller: an nginx in a pod that accepts nothing without a PROXY header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.testbed.addresses import NAMES, REGISTRY, bracketed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
    """Write the ingress controller's nginx.conf: the cluster of Vagrant has the same one.

    The directory is for temporary files; a line of the access log begins with the client.
    """
    everywhere = [{4: "0.0.0.0", 6: "[::]"}[family] for family in families]
    sockets = [f"{address}:{port} proxy_protocol" for port in _HTTP_PORTS for address in everywhere]
    sockets += [f"{address}:{port} ssl proxy_protocol" for port in _TLS_PORTS for address in everywhere]
    listen = "".join(f"        listen {each};\n" for each in sockets)
    temporary = "".join(
        f"    {kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    sites = " ".join(name for name in NAMES if name != REGISTRY)
    return f"""\
daemon off;
user root;
worker_processes 2;
pid {directory}/nginx.pid;
error_log {error_log} info;
events {{ worker_connections 2048; }}
http {{
    log_format testbed '$proxy_protocol_addr $host $server_port $status $request_uri';
    access_log {access_log} testbed;
{temporary}\
    default_type text/plain;
    ssl_certificate {certificates.server};
    ssl_certificate_key {certificates.server_key};
    server {{
{listen}\
        server_name {sites};
        # As an ACME solver answers: the token's key, here made of the token.
        location ~ ^{CHALLENGE}([\\w-]+)$ {{
            return 200 "$1{KEY_SUFFIX}";
        }}
        location / {{
            return 200 "client=$proxy_protocol_addr host=$host port=$server_port\\n";
        }}
    }}
    server {{
{listen}\
        server_name {REGISTRY};
        # Layers of any size, straight through: no spool files.
        client_max_body_size 0;
        proxy_request_buffering off;
        proxy_buffering off;
        location / {{
            return 200 "client=$proxy_protocol_addr host=$host port=$server_port\\n";
        }}
        location /v2/ {{
            proxy_pass http://{bracketed(registry[0])}:{registry[1]};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
"""
