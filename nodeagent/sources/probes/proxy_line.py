"""Pure: the PROXY protocol's header for a connection (haproxy.org/download/3.0/doc/proxy-protocol.txt)."""

import struct

from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ProxyVersion

_SIGNATURE_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_VERSION_2_PROXY = 0x21
_TCP_OVER = {4: 0x11, 6: 0x21}


def proxy_line(version: ProxyVersion, source: Endpoint, destination: Endpoint) -> bytes:
    """The header that says that `source` connected to `destination`; both are of one family."""
    if version == "v1":
        ends = f"{source.address} {destination.address} {source.port} {destination.port}"
        return f"PROXY TCP{source.address.version} {ends}\r\n".encode("ascii")
    ports = struct.pack("!HH", source.port, destination.port)
    body = source.address.packed + destination.address.packed + ports
    head = struct.pack("!BBH", _VERSION_2_PROXY, _TCP_OVER[source.address.version], len(body))
    return _SIGNATURE_V2 + head + body
