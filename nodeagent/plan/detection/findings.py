"""What the annotations of one Service say, provider by provider, and whose word counts on this node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodeagent.errors import quoted
from nodeagent.model.objects import ProxyVersion, Service
from nodeagent.plan.detection.provider import Provider, Switch
from nodeagent.plan.detection.providers import KNOWN_SCHEMES, PROVIDERS
from nodeagent.plan.detection.sending import Sends, combine, tcp_ports


@dataclass(frozen=True, slots=True)
class Finding:
    """What one provider's annotations say of a Service.

    Attributes:
        provider: its name.
        said: the annotations as found, in words.
        versions: the TCP ports with PROXY.
        proxy: whether there are any; true as well where the Service has no TCP port.
        problem: why the annotations can't be used; None when they can.
    """

    provider: str
    said: str
    versions: Mapping[int, ProxyVersion] = field(default_factory=dict)
    proxy: bool = False
    problem: str | None = None


def find(service: Service, provider_id: str) -> tuple[list[Finding], list[Finding]]:
    """What is believed on a node with this `spec.providerID`, and what would switch PROXY on elsewhere.

    An annotation that another cloud left behind (a manifest that has moved) says nothing of this one's load
    balancers. A node without providerID, or with one of an unknown scheme, may be of any cloud.
    """
    scheme, separator, _ = provider_id.partition("://")
    known = bool(separator) and scheme in KNOWN_SCHEMES
    believed: list[Finding] = []
    foreign: list[Finding] = []
    for provider in PROVIDERS:
        finding = _read(provider, service) if provider.applies(service) else None
        if finding is None:
            continue
        if not known or scheme in provider.schemes:
            believed.append(finding)
        elif finding.proxy:
            foreign.append(finding)
    return believed, foreign


def shown(value: str) -> str:
    """An annotation's value as a reason shows it: short, on one line, quoted where it is no plain word."""
    plain = value.isascii() and value.isprintable() and " " not in value and 0 < len(value) <= 60
    return value if plain else quoted(value)


def _read(provider: Provider, service: Service) -> Finding | None:
    sends: list[Sends] = []
    words: list[str] = []
    ports = tcp_ports(service)
    try:
        for switch in provider.switches:
            for key, value, port in _present(switch, service):
                told = f"{key}={shown(value)}"
                if switch.beside in service.annotations:
                    told += f" with {switch.beside}={shown(service.annotations[switch.beside])}"
                found, note = _value(switch, value, service, told)
                if found:
                    sends.append({port: found.get(None, found.get(port, "off"))} if port else found)
                    words.append(told + note)
    except _BadValueError as error:
        said = f"annotation {error.told} ({provider.name})"
        return Finding(provider.name, said, problem=str(error))
    if not sends:
        return None
    said = f"annotation{'s' if len(words) > 1 else ''} {', '.join(words)} ({provider.name})"
    if provider.exclusive:
        twice = sorted(port for port in ports if sum(port in one or None in one for one in sends) > 1)
        if twice:
            return Finding(provider.name, said, problem=f"port {twice[0]} is claimed by both")
    versions = combine(sends, ports)
    proxy = bool(versions) or (not ports and any(sent != "off" for one in sends for sent in one.values()))
    return Finding(provider.name, said, versions, proxy)


def _present(switch: Switch, service: Service) -> Iterator[tuple[str, str, int | None]]:
    """The keys that are there, with their values, and the port where the key itself names one."""
    if "{port}" not in switch.key:
        if switch.key in service.annotations:
            yield switch.key, service.annotations[switch.key], None
        return
    for port in tcp_ports(service):
        key = switch.key.format(port=port)
        if key in service.annotations:
            yield key, service.annotations[key], port


class _BadValueError(ValueError):
    def __init__(self, told: str, problem: str) -> None:
        super().__init__(problem)
        self.told = told


def _value(switch: Switch, value: str, service: Service, told: str) -> tuple[Sends, str]:
    """What the value means, and a note for a value that the controller takes for "off" in silence."""
    try:
        return switch.read(value, service), ""
    except ValueError as error:
        if switch.otherwise_off:
            return {None: "off"}, f", which its controller takes for off: {error}"
        raise _BadValueError(told, str(error)) from error
