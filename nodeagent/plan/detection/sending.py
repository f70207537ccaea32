"""What is said of the ports of a load balancer: which of them send the PROXY line, in which version."""

from collections.abc import Iterable, Mapping
from typing import Literal

from nodeagent.model.objects import ProxyVersion, Service

Sent = ProxyVersion | Literal["off"]

Sends = Mapping[int | None, Sent]
"""What one annotation says: a port and what is sent on it; under None, what holds for every other port.
A port that it does not reach is left to the next one that speaks of it."""


def sent_on_all(what: Sent) -> Sends:
    """The same on every port."""
    return {None: what}


def combine(said: Iterable[Sends], ports: Iterable[int]) -> dict[int, ProxyVersion]:
    """The ports that send PROXY: of each port, the first that speaks of it decides."""
    ordered = tuple(said)
    found: dict[int, ProxyVersion] = {}
    for port in ports:
        sent = next((sends.get(port, sends.get(None)) for sends in ordered if _reaches(sends, port)), None)
        if sent is not None and sent != "off":
            found[port] = sent
    return found


def tcp_ports(service: Service) -> tuple[int, ...]:
    """The Service's TCP ports, in order: PROXY is for them alone."""
    return tuple(sorted({port.port for port in service.ports if port.protocol == "TCP"}))


def in_words(versions: Mapping[int, ProxyVersion], ports: Iterable[int]) -> str:
    """`PROXY v1`, or with the ports where they are not all alike: `PROXY v1 on port 80, v2 on port 443`."""
    if len({versions.get(port) for port in ports}) <= 1:
        return f"PROXY {next(iter(versions.values()))}"
    by_version: dict[ProxyVersion, list[int]] = {}
    for port in sorted(versions):
        by_version.setdefault(versions[port], []).append(port)
    parts = [
        f"{version} on port {', '.join(map(str, numbers))}" for version, numbers in sorted(by_version.items())
    ]
    return f"PROXY {', '.join(parts)}"


def _reaches(sends: Sends, port: int) -> bool:
    return port in sends or None in sends
