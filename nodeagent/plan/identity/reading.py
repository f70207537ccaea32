"""What one row's annotations say of a Service: the ports with PROXY, and those on which TLS ends. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodeagent.errors import quoted
from nodeagent.model.objects import ProxyVersion, Service
from nodeagent.plan.identity.rows import Provider, RejectedError, Sends


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row's annotations say of a Service.

    `keys` are the annotations as found, in words, `versions` the TCP ports with PROXY; `proxy` is true as
    well if a Service has no TCP port. `problem`: why they can't be used.
    """

    row: Provider
    keys: str
    annotations: Mapping[str, str]
    versions: Mapping[int, ProxyVersion] = field(default_factory=dict)
    proxy: bool = False
    problem: str | None = None

    @property
    def said(self) -> str:
        """The annotations, and whose they are."""
        return f"{self.keys} ({self.row.name})"


def shown(value: str) -> str:
    """Return an annotation's value as a reason shows it: short, on one line, quoted unless a plain word."""
    plain = value.isascii() and value.isprintable() and " " not in value and 0 < len(value) <= 60
    return value if plain else quoted(value)


def certificates_of(row: Provider, service: Service) -> dict[str, frozenset[int]]:
    """Return the annotations by which one row's load balancer terminates TLS, with the ports."""
    found: dict[str, frozenset[int]] = {}
    for certificate in row.certificates:
        for key, value, port in _present(certificate.key, service):
            ports = certificate.ports(value, service) if value else frozenset()
            ports = ports if port is None else ports & {port}
            if ports:
                found[key] = found.get(key, frozenset()) | ports
    return found


def read_row(row: Provider, service: Service) -> Reading | None:
    """Return what a row's switches say of a Service; None if none of them is there."""
    sends: list[Sends] = []
    claimed: Counter[int] = Counter()
    words: list[str] = []
    given: dict[str, str] = {}
    ports = service.tcp_ports
    for switch in row.switches:
        for key, value, port in _present(switch.key, service):
            beside = {
                each: text for each in switch.beside if (text := service.annotations.get(each)) is not None
            }
            beside.pop(key, None)
            given |= {key: value, **beside}
            told = " with ".join([f"{key}={shown(value)}", *(f"{k}={shown(v)}" for k, v in beside.items())])
            try:
                found = switch.read(value, service)
            except ValueError as error:
                if not switch.otherwise_off or isinstance(error, RejectedError):
                    return Reading(row, f"annotation {told}", given, problem=str(error))
                found = {None: "off"}
                told += f", which its controller treats as off: {error}"
            if found:
                sends.append({port: found.get(None, found.get(port, "off"))} if port else found)
                words.append(told)
                claimed.update(port for port in ports if switch.alone and _reaches(found, port))
    if not sends:
        return None
    said = f"annotation{'s' if len(words) > 1 else ''} {', '.join(words)}"
    twice = [port for port in ports if claimed[port] > 1]
    if twice:
        return Reading(row, said, given, problem=f"port {twice[0]} is claimed by both")
    versions = _combine(sends, ports)
    proxy = bool(versions) or (not ports and any(sent != "off" for one in sends for sent in one.values()))
    return Reading(row, said, given, versions, proxy)


def _present(key: str, service: Service) -> Iterator[tuple[str, str, int | None]]:
    """Yield the keys that are there, with their values, and the port if the key itself names one."""
    if "{port}" not in key:
        if key in service.annotations:
            yield key, service.annotations[key], None
        return
    for port in service.tcp_ports:
        of_port = key.format(port=port)
        if of_port in service.annotations:
            yield of_port, service.annotations[of_port], port


def _combine(said: Iterable[Sends], ports: Iterable[int]) -> dict[int, ProxyVersion]:
    """Return the ports that send PROXY: for each port, the first annotation that mentions it decides."""
    ordered = tuple(said)
    found: dict[int, ProxyVersion] = {}
    for port in ports:
        sent = next((sends.get(port, sends.get(None)) for sends in ordered if _reaches(sends, port)), None)
        if sent is not None and sent != "off":
            found[port] = sent
    return found


def _reaches(sends: Sends, port: int) -> bool:
    return port in sends or None in sends
