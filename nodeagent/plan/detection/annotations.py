"""What the annotations of one Service say, provider by provider, and whose word counts on this node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodeagent.errors import quoted
from nodeagent.model.objects import ProxyVersion, Service
from nodeagent.plan.detection.providers import KNOWN_SCHEMES, PROVIDERS
from nodeagent.plan.detection.readers import Provider, Sends, Switch


@dataclass(frozen=True, slots=True)
class AnnotationReading:
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


def read_annotations(
    service: Service, provider_id: str
) -> tuple[list[AnnotationReading], list[AnnotationReading]]:
    """What is believed on a node with this `spec.providerID`, and what would switch PROXY on elsewhere.

    An annotation that another cloud left behind (a manifest that has moved) says nothing of this one's load
    balancers. A node without providerID, or with one of an unknown scheme, may be of any cloud.
    """
    scheme, separator, _ = provider_id.partition("://")
    known = bool(separator) and scheme in KNOWN_SCHEMES
    believed: list[AnnotationReading] = []
    foreign: list[AnnotationReading] = []
    for provider in PROVIDERS:
        reading = _read(provider, service) if provider.applies(service) else None
        if reading is None:
            continue
        if not known or scheme in provider.schemes:
            believed.append(reading)
        elif reading.proxy:
            foreign.append(reading)
    return believed, foreign


def shown(value: str) -> str:
    """An annotation's value as a reason shows it: short, on one line, quoted where it is no plain word."""
    plain = value.isascii() and value.isprintable() and " " not in value and 0 < len(value) <= 60
    return value if plain else quoted(value)


def _read(provider: Provider, service: Service) -> AnnotationReading | None:
    sends: list[Sends] = []
    words: list[str] = []
    ports = service.tcp_ports
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
        return AnnotationReading(provider.name, said, problem=str(error))
    if not sends:
        return None
    said = f"annotation{'s' if len(words) > 1 else ''} {', '.join(words)} ({provider.name})"
    if provider.exclusive:
        twice = sorted(port for port in ports if sum(port in one or None in one for one in sends) > 1)
        if twice:
            return AnnotationReading(provider.name, said, problem=f"port {twice[0]} is claimed by both")
    versions = _combine(sends, ports)
    proxy = bool(versions) or (not ports and any(sent != "off" for one in sends for sent in one.values()))
    return AnnotationReading(provider.name, said, versions, proxy)


def _present(switch: Switch, service: Service) -> Iterator[tuple[str, str, int | None]]:
    """The keys that are there, with their values, and the port where the key itself names one."""
    if "{port}" not in switch.key:
        if switch.key in service.annotations:
            yield switch.key, service.annotations[switch.key], None
        return
    for port in service.tcp_ports:
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
            return {None: "off"}, f", which its controller treats as off: {error}"
        raise _BadValueError(told, str(error)) from error


def _combine(said: Iterable[Sends], ports: Iterable[int]) -> dict[int, ProxyVersion]:
    """The ports that send PROXY: of each port, the first that speaks of it decides."""
    ordered = tuple(said)
    found: dict[int, ProxyVersion] = {}
    for port in ports:
        sent = next((sends.get(port, sends.get(None)) for sends in ordered if _reaches(sends, port)), None)
        if sent is not None and sent != "off":
            found[port] = sent
    return found


def _reaches(sends: Sends, port: int) -> bool:
    return port in sends or None in sends
