"""What the table of controllers says of one, and what its annotations say of a Service. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from nodeagent.errors import quoted
from nodeagent.model.objects import ProxyVersion, Service

Sent = ProxyVersion | Literal["off"]

Sends = Mapping[int | None, Sent]
"""What one annotation says: ports and what is sent on each; under None, what holds for every other port.
A port that it does not cover is left to the next annotation that mentions it."""


class RejectedError(ValueError):
    """The controller rejects a Service with this value, whatever it does with unknown ones."""


class Reader(Struct, frozen=True):
    """How one annotation switches PROXY on.

    Attributes:
        read: takes its value and the Service. Raises ValueError, with the problem, for a value that the
            controller rejects or does not know.
        on: what switches PROXY on, for docs/configuration.md; `sends`: what is then sent.
        otherwise_off: the controller silently takes an unknown value for "off".
        beside: other annotations that it uses, to be shown with it.
        alone: the controller rejects a Service in which two such annotations claim one port.
    """

    read: Callable[[str, Service], Sends]
    on: str = ""
    sends: str = ""
    otherwise_off: bool = False
    beside: tuple[str, ...] = ()
    alone: bool = False


TlsReader = Callable[[str, Service], frozenset[int]]
"""Takes the value of an annotation and the Service, and returns the TCP ports on which TLS ends; may raise
ValueError, and then it ends on none."""


class Provider(Struct, frozen=True, eq=False):
    """One kind of load balancer of one controller, and what that offers itself against short-circuiting.

    Attributes:
        name: as a person knows it.
        schemes: the part before `://` in `spec.providerID` of its Nodes; empty if it runs next to any cloud.
        switches: the annotations that switch PROXY on, in order of precedence, with their readers; `{port}`
            in one is replaced by each of the Service's ports in turn. For each port, the first that mentions
            it decides; without any, PROXY is off, which is every controller's default.
        switched_on: which values switch PROXY on, as docs/configuration.md says it, and `sends` which
            versions; empty if the reader of the first switch says all of it.
        certificates: those by which it terminates TLS, with the readers of the ports on which it does.
        classes: each `spec.loadBalancerClass` that it serves; one that ends with `/` or `.` is the beginning
            of several. A controller that is built on Kubernetes' own library skips every Service with a
            class (cloud-provider: controllers/service/controller.go, wantsLoadBalancer).
        written: the beginnings of annotations that it writes itself to a Service that it serves.
        signs: those of other annotations that only it reads.
        announces: it announces the address on a node, where kube-proxy's rules must accept it.
        sends_none: it sends no PROXY header, whatever the annotations say.
        off_unless_annotated: nothing but annotations switches PROXY on, neither options nor a console.
        kind: which of its cloud's kinds of load balancer it is, as in "read only for a ..."; empty for a
            cloud with one kind. `kind_of` returns the one that a Service asks for.
        doubt: why a Service may send no PROXY nevertheless; empty if it is certain.
        hostname: the annotation, ready to paste, that publishes a host name instead of the address; replace
            the name `lb.example.com` in it. Empty: none is known.
        publishes_hostname: its status has a host name and no address, so it is not short-circuited.
        ip_mode: since when and for which Services its controller sets `ipMode: Proxy`. Empty: it does not.
        ip_mode_on_request: the annotation, ready to paste, that makes it do so.
        detour: that by which its cluster's own kube-proxy leaves the address alone, without ipMode.
        workload: where the controller runs in the cluster, as kubectl names it (`deployment/name`, in
            kube-system); empty if the provider runs it, or this is not known.
    """

    name: str
    schemes: tuple[str, ...] = ()
    switches: Mapping[str, Reader] = {}
    switched_on: str = ""
    sends: str = ""
    certificates: Mapping[str, TlsReader] = {}
    classes: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    announces: bool = False
    sends_none: bool = False
    off_unless_annotated: bool = False
    kind: str = ""
    kind_of: Callable[[Service], str] = lambda _: ""
    doubt: Callable[[Service], str] = lambda _: ""
    hostname: str = ""
    publishes_hostname: bool = False
    ip_mode: str = ""
    ip_mode_on_request: str = ""
    detour: str = ""
    workload: str = ""

    @property
    def family(self) -> str:
        """The provider's name without the kind of load balancer."""
        return self.name.partition(" (")[0]

    def serves_class(self, name: str) -> bool:
        """Whether its controller serves a Service with this `spec.loadBalancerClass`."""
        beginnings = tuple(start for start in self.classes if start.endswith(("/", ".")))
        return name in self.classes or name.startswith(beginnings)

    def applies(self, service: Service) -> bool:
        """Whether a Service of its controller asks for this kind of load balancer."""
        return self.kind_of(service) == self.kind


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row's switches say of a Service: `keys` are the annotations in words.

    `proxy` is true as well if a Service has no TCP port; `problem` is why they can't be used.
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
    certificates: dict[str, frozenset[int]] = {}
    for pattern, reader in row.certificates.items():
        for key, value, port in _present(pattern, service):
            ports: frozenset[int] = frozenset()
            with suppress(ValueError):  # its controller rejects it, or does not know it
                ports = reader(value, service) if value else ports
            if ports := ports if port is None else ports & {port}:
                certificates[key] = certificates.get(key, frozenset()) | ports
    return certificates


def read_row(row: Provider, service: Service) -> Reading | None:
    """Return what a row's switches say of a Service; None if none of them is there."""
    sends: list[Sends] = []
    claimed: Counter[int] = Counter()
    words: list[str] = []
    annotations: dict[str, str] = {}
    ports = service.tcp_ports
    for pattern, reader in row.switches.items():
        for key, value, in_key in _present(pattern, service):
            others = {name: service.annotations.get(name) for name in reader.beside if name != key}
            beside = {name: text for name, text in others.items() if text is not None}
            annotations |= {key: value, **beside}
            phrase = " with ".join(f"{name}={shown(text)}" for name, text in ({key: value} | beside).items())
            try:
                parsed = reader.read(value, service)
            except ValueError as error:
                if not reader.otherwise_off or isinstance(error, RejectedError):
                    return Reading(row, f"annotation {phrase}", annotations, problem=str(error))
                parsed = {None: "off"}
                phrase += f", which its controller treats as off: {error}"
            if parsed:
                sends.append({in_key: parsed.get(None, parsed.get(in_key, "off"))} if in_key else parsed)
                words.append(phrase)
                claimed.update(port for port in ports if reader.alone and (port in parsed or None in parsed))
    if not sends:
        return None
    said = f"annotation{'s' if len(words) > 1 else ''} {', '.join(words)}"
    twice = [port for port in ports if claimed[port] > 1]
    if twice:
        return Reading(row, said, annotations, problem=f"port {twice[0]} is claimed by both")
    versions = {port: sent for port in ports if (sent := _sent(sends, port)) != "off"}
    proxy = bool(versions) or (not ports and any(sent != "off" for entry in sends for sent in entry.values()))
    return Reading(row, said, annotations, versions, proxy)


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


def _sent(said: Sequence[Sends], port: int) -> Sent:
    """Return what is sent on a port: the first annotation that mentions it decides."""
    candidates = (sends.get(port, sends.get(None)) for sends in said)
    return next((sent for sent in candidates if sent is not None), "off")
