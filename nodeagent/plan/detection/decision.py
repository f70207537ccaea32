"""detect(): what decides for one Service, in order of precedence.

The configuration file takes precedence over the Service's annotations, nodeagent's own over the providers'.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.config.options import LoadBalancerOptions, ProxyService
from nodeagent.errors import quoted
from nodeagent.model.desired import Conclusion, Decision, refused, served, skipped
from nodeagent.model.objects import PROXY_PROTOCOL, Node, ProxyVersion, Service, opt_out
from nodeagent.plan.detection.providers import KNOWN_SCHEMES, PROVIDERS
from nodeagent.plan.detection.readers import Provider, Sends, Switch


@dataclass(frozen=True, slots=True)
class AnnotationReading:
    """What one provider's annotations say of a Service.

    Attributes:
        provider: its name.
        said: the annotations as found, in words.
        versions: the TCP ports with PROXY.
        proxy: whether there are any; true as well if the Service has no TCP port.
        problem: why the annotations can't be used; None if they can.
        doubt: why it may send no PROXY nevertheless.
    """

    provider: str
    said: str
    versions: Mapping[int, ProxyVersion] = field(default_factory=dict)
    proxy: bool = False
    problem: str | None = None
    doubt: str = ""


def read_annotations(
    service: Service, provider_id: str
) -> tuple[list[AnnotationReading], list[AnnotationReading]]:
    """Return what counts on a node with this `spec.providerID`, and what would enable PROXY elsewhere.

    An annotation that another cloud left behind (a manifest that was moved) says nothing about this cloud's
    load balancers. A node without providerID, or with one of an unknown scheme, may be of any cloud.
    """
    scheme, separator, _ = provider_id.partition("://")
    known = bool(separator) and scheme in KNOWN_SCHEMES
    believed: list[AnnotationReading] = []
    foreign: list[AnnotationReading] = []
    for provider in PROVIDERS:
        reading = _read(provider, service) if provider.applies(service) else None
        if reading is None:
            continue
        if not known or not provider.schemes or scheme in provider.schemes:
            believed.append(reading)
        elif reading.proxy:
            foreign.append(reading)
    return believed, foreign


def shown(value: str) -> str:
    """Return an annotation's value as a reason shows it: short, on one line, quoted unless a plain word."""
    plain = value.isascii() and value.isprintable() and " " not in value and 0 < len(value) <= 60
    return value if plain else quoted(value)


def _read(provider: Provider, service: Service) -> AnnotationReading | None:
    sends: list[Sends] = []
    claimed: Counter[int] = Counter()
    words: list[str] = []
    ports = service.tcp_ports
    for switch in provider.switches:
        for key, value, port in _present(switch, service):
            given = {each: service.annotations.get(each) for each in switch.beside if each != key}
            beside = (f" with {each}={shown(text)}" for each, text in given.items() if text is not None)
            told = f"{key}={shown(value)}{''.join(beside)}"
            try:
                found = switch.read(value, service)
            except ValueError as error:
                if not switch.otherwise_off:
                    said = f"annotation {told} ({provider.name})"
                    return AnnotationReading(provider.name, said, problem=str(error))
                found = {None: "off"}
                told += f", which its controller treats as off: {error}"
            if found:
                sends.append({port: found.get(None, found.get(port, "off"))} if port else found)
                words.append(told)
                claimed.update(port for port in ports if switch.alone and _reaches(found, port))
    if not sends:
        return None
    said = f"annotation{'s' if len(words) > 1 else ''} {', '.join(words)} ({provider.name})"
    twice = [port for port in ports if claimed[port] > 1]
    if twice:
        return AnnotationReading(provider.name, said, problem=f"port {twice[0]} is claimed by both")
    versions = _combine(sends, ports)
    proxy = bool(versions) or (not ports and any(sent != "off" for one in sends for sent in one.values()))
    return AnnotationReading(provider.name, said, versions, proxy, doubt=provider.doubt(service))


def _present(switch: Switch, service: Service) -> Iterator[tuple[str, str, int | None]]:
    """Yield the keys that are there, with their values, and the port if the key itself names one."""
    if "{port}" not in switch.key:
        if switch.key in service.annotations:
            yield switch.key, service.annotations[switch.key], None
        return
    for port in service.tcp_ports:
        key = switch.key.format(port=port)
        if key in service.annotations:
            yield key, service.annotations[key], port


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


LISTED = "Listed"
"""The code of what loadBalancers.services decides: an administrator named the Service."""

ANNOTATED = "Annotated"
"""The code of what the Service's own annotations decide."""

FOREIGN = "ForeignAnnotation"
"""The code if only another cloud's annotations mention PROXY."""

_OWN_WORDS: Mapping[str, ProxyVersion | None] = {"v1": "v1", "v2": "v2", "off": None}


@dataclass(frozen=True, slots=True)
class Detection(Decision):
    """Whether one load balancer sends PROXY.

    Attributes:
        conclusion: what decided, and for one that sends none, whether an administrator should check it.
        versions: the TCP ports on which it sends PROXY.
        proxy: whether it does so at all; true as well if a Service has no TCP port that it could do so on.
        reserved: another node may take it for a PROXY load balancer, so a relay address is kept for it: every
            node must compute the same ones.
        remarks: notes on parts of it.
        stated: whether something of this cloud says that it sends PROXY, or that it does not.
    """

    conclusion: Conclusion
    versions: Mapping[int, ProxyVersion] = field(default_factory=dict)
    proxy: bool = False
    reserved: bool = False
    remarks: tuple[str, ...] = ()
    stated: bool = True


def detect(service: Service, options: LoadBalancerOptions, node: Node | None) -> Detection:
    """Decide for one Service; `node` shows the cloud of this node (`spec.providerID`). Pure."""
    listed = _by_configuration(service, options)
    if listed is not None:
        return listed
    if reason := opt_out(service.annotations):
        return Detection(skipped("ExcludedByAnnotation", reason))
    annotated = None
    if options.detect:
        annotated = _by_own_annotation(service) or _by_providers(service, node.provider_id if node else "")
    who = "no annotation says so" if options.detect else "loadBalancers.detect is false"
    reason = f"not known to send PROXY: {who}, and it is not listed in loadBalancers.services"
    return annotated or Detection(skipped("NotProxy", reason), stated=False)


def _by_configuration(service: Service, options: LoadBalancerOptions) -> Detection | None:
    """`ignore` takes precedence over `services`."""
    if any(entry.path == service.ref.path for entry in options.ignore):
        return Detection(skipped("Ignored", "listed in loadBalancers.ignore"))
    for entry in options.services:
        if entry.path == service.ref.path:
            remarks = tuple(
                f"port {port}: listed in loadBalancers.services, but not a TCP port of the Service"
                for port in sorted(set(entry.ports) - set(service.tcp_ports))
            )
            return _proxy(
                service, LISTED, _versions(service, entry), "listed in loadBalancers.services", remarks
            )
    return None


def _by_own_annotation(service: Service) -> Detection | None:
    value = service.annotations.get(PROXY_PROTOCOL)
    if value is None:
        return None
    said = f"annotation {PROXY_PROTOCOL}={shown(value)}"
    if value not in _OWN_WORDS:
        reason = f"{said} is not one of {', '.join(_OWN_WORDS)}; nothing is relayed for it"
        return Detection(refused("BadAnnotation", reason))
    version = _OWN_WORDS[value]
    if version is None:
        return Detection(skipped("NotProxy", f"no PROXY: {said}"))
    return _proxy(service, ANNOTATED, dict.fromkeys(service.tcp_ports, version), said)


def _by_providers(service: Service, provider_id: str) -> Detection | None:
    believed, foreign = read_annotations(service, provider_id)
    not_believed = tuple(
        f"{reading.said}: not believed: this node does not belong to {reading.provider}: its providerID is "
        f"{quoted(provider_id)}"
        for reading in foreign
    )
    if believed:
        decided = _by_readings(service, believed, not_believed)
        # Whichever of them a node of another cloud believes.
        return replace(decided, reserved=any(reading.proxy for reading in (*believed, *foreign)))
    if foreign:
        reason = f"{not_believed[0]}; if it sends PROXY, list it in loadBalancers.services"
        return Detection(skipped(FOREIGN, reason), reserved=True, remarks=not_believed[1:], stated=False)
    return None


def _by_readings(
    service: Service, believed: Sequence[AnnotationReading], remarks: tuple[str, ...]
) -> Detection:
    bad = next((reading for reading in believed if reading.problem), None)
    if bad:
        reason = f"{bad.said}: {bad.problem}; nothing is relayed for it"
        return Detection(refused("BadAnnotation", reason), remarks=remarks)
    if len({frozenset(reading.versions) for reading in believed}) > 1:
        reason = (
            f"{'; '.join(reading.said for reading in believed)}: they contradict each other: "
            "list it in loadBalancers.services or loadBalancers.ignore"
        )
        return Detection(refused("Contradiction", reason), remarks=remarks)
    reading = believed[0]
    if not reading.proxy:
        return Detection(skipped("NotProxy", f"no PROXY: {reading.said}"), remarks=remarks)
    doubt = (f"{reading.said}: {reading.doubt}",) if reading.doubt else ()
    return _proxy(service, ANNOTATED, reading.versions, reading.said, (*doubt, *remarks))


def _versions(service: Service, entry: ProxyService) -> dict[int, ProxyVersion]:
    ports = service.tcp_ports
    return {port: entry.proxy_protocol for port in ports if not entry.ports or port in entry.ports}


def _proxy(
    service: Service,
    code: str,
    versions: Mapping[int, ProxyVersion],
    said: str,
    remarks: tuple[str, ...] = (),
) -> Detection:
    ports = service.tcp_ports
    if ports and not versions:
        return Detection(skipped("NotProxy", f"no PROXY on any of its ports: {said}"), remarks=remarks)
    what = _in_words(versions, ports) if versions else "PROXY"
    conclusion = served(code, f"{what}: {said}")
    return Detection(conclusion, versions=versions, proxy=True, reserved=True, remarks=remarks)


def _in_words(versions: Mapping[int, ProxyVersion], ports: Iterable[int]) -> str:
    """`PROXY v1`, or with the ports if they differ: `PROXY v1 on port 80, v2 on port 443`."""
    if len({versions.get(port) for port in ports}) <= 1:
        return f"PROXY {next(iter(versions.values()))}"
    by_version: dict[ProxyVersion, list[int]] = {}
    for port in sorted(versions):
        by_version.setdefault(versions[port], []).append(port)
    parts = [
        f"{version} on port {', '.join(map(str, numbers))}" for version, numbers in sorted(by_version.items())
    ]
    return f"PROXY {', '.join(parts)}"
