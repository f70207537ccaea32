"""identify(): whose load balancer a Service is, how that is known, and what follows for each port.

In order of precedence: the configuration, nodeagent's own annotation, the controller that serves the Service.
That controller is known by `spec.loadBalancerClass`, by what it writes to the Service itself, or by the
cloud of the Nodes; if none of these says anything, by the annotations alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.config.options import LoadBalancerOptions, ProxyService
from nodeagent.model.desired import Conclusion, Decision, refused, served, skipped
from nodeagent.model.objects import PROXY_PROTOCOL, ProxyVersion, Service, Snapshot, opt_out
from nodeagent.plan.identity.providers import KNOWN_SCHEMES, PROVIDERS
from nodeagent.plan.identity.reading import Reading, certificates_of, read_row, shown
from nodeagent.plan.identity.rows import Provider

LISTED = "Listed"
"""The code of what loadBalancers.services decides: an administrator named the Service."""

ANNOTATED = "Annotated"
"""The code of what the Service's own annotations decide."""

FOREIGN = "ForeignAnnotation"
"""The code if only annotations that this Service's controller does not read mention PROXY."""

_OWN_WORDS: Mapping[str, ProxyVersion | None] = {"v1": "v1", "v2": "v2", "off": None}


@dataclass(frozen=True, slots=True)
class Identity(Decision):
    """Whose load balancer a Service is, and what follows.

    Attributes:
        conclusion: what decided, and for one that sends none, whether an administrator should check it.
        provider: the row of its controller; None if that is unknown.
        known_by: what says so, in words; empty if nothing does.
        versions: the TCP ports on which it sends PROXY and does not terminate TLS.
        terminated: the TCP ports on which it terminates TLS, which a relay can't replace.
        annotations: those that decide, as found: a policy may depend on them.
        sends: whether it sends PROXY on any port, also where TLS ends.
        proxy: whether a relay can replace it on any port.
        reserved: another node may take it for a PROXY load balancer, so a relay address is kept for it: every
            node must compute the same ones.
        remarks: notes on parts of it, and on each key that is there and does not count.
        stated: whether something that counts says that it sends PROXY, or that it does not.
    """

    conclusion: Conclusion
    provider: Provider | None = None
    known_by: str = ""
    versions: Mapping[int, ProxyVersion] = field(default_factory=dict)
    terminated: tuple[int, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    sends: bool = False
    proxy: bool = False
    reserved: bool = False
    remarks: tuple[str, ...] = ()
    stated: bool = True

    @property
    def announcer(self) -> str:
        """The program that announces its address on a node, where kube-proxy's rules must accept it."""
        return self.provider.name if self.provider is not None and self.provider.announces else ""


def cloud_of(snapshot: Snapshot) -> str:
    """Return the `spec.providerID` by which the cloud is known: this node's, else one if all Nodes agree."""
    if snapshot.node is not None:
        return snapshot.node.provider_id
    found = {_scheme(node.provider_id): node.provider_id for node in snapshot.nodes}
    return next(iter(found.values())) if len(found) == 1 else ""


def identify(service: Service, options: LoadBalancerOptions, provider_id: str) -> Identity:
    """Decide for one Service; `provider_id` is as `cloud_of` returns it. Pure."""
    if any(entry.path == service.ref.path for entry in options.ignore):
        return Identity(skipped("Ignored", "listed in loadBalancers.ignore"))
    controller = _controller(service, provider_id)
    if service.ports and not service.tcp_ports:
        return _of(controller, skipped("NotProxy", "no PROXY: it has no TCP port"))
    listed = _by_configuration(service, options, controller)
    if listed is not None:
        return listed
    if reason := opt_out(service.annotations):
        return _of(controller, skipped("ExcludedByAnnotation", reason))
    if not options.detect:
        return _of(controller, _unknown("loadBalancers.detect is false"), stated=False)
    return _by_own_annotation(service, controller) or _by_controller(service, controller)


@dataclass(frozen=True, slots=True)
class _Controller:
    """Who serves a Service: the rows of its controller that apply, what they say, and what does not count."""

    row: Provider | None
    known_by: str
    readings: tuple[Reading, ...]
    notes: tuple[str, ...]
    elsewhere: bool
    terminated: frozenset[int]
    certificates: Mapping[str, str]


def _controller(service: Service, provider_id: str) -> _Controller:
    rows, known_by, why_not = _rows(service, provider_id)
    read = [reading for row in PROVIDERS if (reading := read_row(row, service))]
    readings = tuple(each for each in read if each.row in rows and each.row.applies(service))
    counted = {key for reading in readings for key in reading.annotations}
    notes: dict[str, str] = {}
    for each in read:
        if each.annotations.keys().isdisjoint(counted):
            why = why_not
            if each.row in rows:
                why = f"it is read only for {each.row.kind}; this is {each.row.kind_of(service) or 'another'}"
            notes.setdefault(each.keys, f"{each.keys}: does not count: {why}")
    of_kind = [row for row in rows if row.applies(service)]
    certificates = {row: found for row in of_kind if (found := certificates_of(row, service))}
    tls = {key: ports for found in certificates.values() for key, ports in found.items()}
    for key in (key for row in PROVIDERS if row not in rows for key in certificates_of(row, service)):
        if key not in tls:
            said = f"annotation {key}={shown(service.annotations[key])}"
            notes.setdefault(said, f"{said}: does not count: {why_not}")
    speaking = [*(reading.row for reading in readings), *certificates]
    decided = next(iter(speaking), None)
    if len({row.family for row in speaking}) > 1:
        # Nothing tells them apart: to name one would be a guess, and its fix may be another cloud's.
        decided = None
    elif decided is None and known_by:
        decided = next(iter(of_kind), None)
    return _Controller(
        row=decided,
        known_by=known_by or ("its annotations" if decided else ""),
        readings=readings,
        notes=tuple(notes.values()),
        elsewhere=any(each.proxy and each.row not in rows for each in read),
        terminated=frozenset[int]().union(*tls.values()),
        certificates={key: service.annotations[key] for key in tls},
    )


def _rows(service: Service, provider_id: str) -> tuple[Sequence[Provider], str, str]:
    """Return the rows that may be the controller's, what says so, and why the others' keys don't count."""
    name = service.load_balancer_class
    if name is not None:
        rows = [row for row in PROVIDERS if row.serves_class(name)]
        why_not = (
            f"spec.loadBalancerClass is {shown(name)}, and a controller skips a Service whose class is not "
            "its own"
        )
        return rows, f"spec.loadBalancerClass {shown(name)}", why_not
    for row in PROVIDERS:
        if row.written and (key := _starting(service, row.written)):
            return [row], f"the annotation {key}, which {row.name} writes", f"{row.name} serves this Service"
    scheme = _scheme(provider_id)
    if scheme in KNOWN_SCHEMES:
        rows = [row for row in PROVIDERS if scheme in row.schemes or (not row.schemes and not row.sends_none)]
        own = [row for row in rows if row.schemes]
        if any(_has_key(row, service) for row in rows) or not (announcer := _announcer(service)):
            # A row without schemes counts by its key alone, so it is never taken for the cloud's.
            rows = [*own, *(row for row in rows if not row.schemes and _has_key(row, service))]
            return (
                rows,
                f"spec.providerID {shown(provider_id)}",
                f"the Nodes' providerID is {shown(provider_id)}",
            )
        return [announcer[0]], announcer[1], f"{announcer[0].name} announces its address"
    if announcer := _announcer(service):
        return [announcer[0]], announcer[1], f"{announcer[0].name} announces its address"
    return [row for row in PROVIDERS if not row.sends_none], "", ""


def _announcer(service: Service) -> tuple[Provider, str] | None:
    for row in PROVIDERS:
        if row.signs and (key := _starting(service, row.signs)):
            return row, f"the annotation {key}"
    return None


def _starting(service: Service, starts: tuple[str, ...]) -> str:
    return next((key for key in sorted(service.annotations) if key.startswith(starts)), "")


def _has_key(row: Provider, service: Service) -> bool:
    """Whether an annotation is there that one row reads."""
    given = [switch.key for switch in row.switches] + [certificate.key for certificate in row.certificates]
    starts = tuple(key.partition("{port}")[0] for key in given)
    return row.applies(service) and bool(_starting(service, starts))


def _scheme(provider_id: str) -> str:
    """Return the cloud in a `spec.providerID`; two clouds write none before `://`."""
    scheme, separator, _ = provider_id.partition("://")
    if separator:
        return scheme
    # oci-cloud-controller-manager writes the instance's OCID alone, Alibaba's `region.instance`.
    if provider_id.startswith("ocid1."):
        return "oci"
    return "alicloud" if re.fullmatch(r"[a-z]{2,}-[a-z0-9-]+\.i-\w+", provider_id) else ""


def _by_configuration(
    service: Service, options: LoadBalancerOptions, controller: _Controller
) -> Identity | None:
    for entry in options.services:
        if entry.path == service.ref.path:
            remarks = tuple(
                f"port {port}: listed in loadBalancers.services, but not a TCP port of the Service"
                for port in sorted(set(entry.ports) - set(service.tcp_ports))
            )
            versions = _listed_versions(service, entry)
            said = "listed in loadBalancers.services"
            return _proxy(service, controller, LISTED, versions, said=said, annotations={}, remarks=remarks)
    return None


def _by_own_annotation(service: Service, controller: _Controller) -> Identity | None:
    value = service.annotations.get(PROXY_PROTOCOL)
    if value is None:
        return None
    said = f"annotation {PROXY_PROTOCOL}={shown(value)}"
    if value not in _OWN_WORDS:
        reason = f"{said} is not one of {', '.join(_OWN_WORDS)}; nothing is relayed for it"
        return _of(controller, refused("BadAnnotation", reason))
    version = _OWN_WORDS[value]
    if version is None:
        return _not_proxy(controller, f"no PROXY: {said}")
    versions = dict.fromkeys(service.tcp_ports, version)
    own = {PROXY_PROTOCOL: value}
    return _proxy(service, controller, ANNOTATED, versions, said=said, annotations=own)


def _by_controller(service: Service, controller: _Controller) -> Identity:
    readings = controller.readings
    reserved = controller.elsewhere or any(reading.proxy for reading in readings)
    bad = next((reading for reading in readings if reading.problem), None)
    if bad:
        reason = f"{bad.said}: {bad.problem}; nothing is relayed for it"
        return _of(controller, refused("BadAnnotation", reason), reserved=reserved)
    if len({frozenset(reading.versions) for reading in readings}) > 1:
        reason = (
            f"{'; '.join(reading.keys for reading in readings)}: they contradict each other: "
            "list it in loadBalancers.services or loadBalancers.ignore"
        )
        return _of(controller, refused("Contradiction", reason), reserved=reserved)
    if readings and readings[0].proxy:
        reading, row = readings[0], controller.row
        # Of several that say the same, nothing shows whose it is.
        said = reading.said if row else "; ".join(each.keys for each in readings)
        doubt = row.doubt(service) if row else ""
        remarks = (f"{reading.said}: {doubt}",) if doubt else ()
        return _proxy(
            service,
            controller,
            ANNOTATED,
            reading.versions,
            said=said,
            annotations={key: value for each in readings for key, value in each.annotations.items()},
            remarks=remarks,
        )
    if readings:
        said = readings[0].said if controller.row else "; ".join(each.keys for each in readings)
        return replace(_not_proxy(controller, f"no PROXY: {said}"), reserved=reserved)
    row = controller.row
    if row is not None and row.sends_none:
        reason = (
            f"no PROXY: {row.name} serves it ({controller.known_by}), and adds no header; if something in "
            "front of it does, list it in loadBalancers.services"
        )
        return replace(_not_proxy(controller, reason), reserved=reserved)
    if controller.elsewhere and controller.notes:
        reason = f"{controller.notes[0]}; if it sends PROXY, list it in loadBalancers.services"
        found = _of(controller, skipped(FOREIGN, reason), reserved=True, stated=False)
        found = replace(found, remarks=controller.notes[1:])
    else:
        found = _of(
            controller, _unknown("no annotation says so", controller.notes), reserved=reserved, stated=False
        )
        found = replace(found, remarks=())
    return _terminating(found, controller)


def _unknown(why: str, notes: Sequence[str] = ()) -> Conclusion:
    said = "; ".join([why, *notes])
    return skipped(
        "NotProxy", f"not known to send PROXY: {said}, and it is not listed in loadBalancers.services"
    )


def _of(
    controller: _Controller, conclusion: Conclusion, *, reserved: bool = False, stated: bool = True
) -> Identity:
    return Identity(
        conclusion,
        controller.row,
        controller.known_by,
        reserved=reserved,
        stated=stated,
        remarks=controller.notes,
        terminated=tuple(sorted(controller.terminated)),
        annotations=controller.certificates,
    )


def _not_proxy(controller: _Controller, reason: str) -> Identity:
    return _terminating(_of(controller, skipped("NotProxy", reason)), controller)


def _terminating(found: Identity, controller: _Controller) -> Identity:
    """Say of one that sends no PROXY, as far as is known, that it terminates TLS, if it does."""
    if not controller.terminated:
        return found
    return replace(found, conclusion=_tls(controller), stated=True)


def _tls(controller: _Controller) -> Conclusion:
    ports = ", ".join(map(str, sorted(controller.terminated)))
    keys = ", ".join(f"{key}={shown(value)}" for key, value in controller.certificates.items())
    return skipped(
        "TerminatesTLS",
        f"it terminates TLS on port {ports} ({'annotation ' if keys else ''}{keys}), which a relay can't "
        "replace: nothing is relayed there",
    )


def _listed_versions(service: Service, entry: ProxyService) -> dict[int, ProxyVersion]:
    ports = service.tcp_ports
    return {port: entry.proxy_protocol for port in ports if not entry.ports or port in entry.ports}


def _proxy(  # noqa: PLR0913 - each is one part of what is said
    service: Service,
    controller: _Controller,
    code: str,
    versions: Mapping[int, ProxyVersion],
    *,
    said: str,
    annotations: Mapping[str, str],
    remarks: tuple[str, ...] = (),
) -> Identity:
    ports = service.tcp_ports
    found = _of(controller, skipped("NotProxy", f"no PROXY on any of its ports: {said}"), reserved=True)
    found = replace(found, remarks=(*remarks, *controller.notes))
    if ports and not versions:
        return _terminating(replace(found, reserved=False), controller)
    relayed = {port: version for port, version in versions.items() if port not in controller.terminated}
    if ports and not relayed:
        said_by = {**annotations, **controller.certificates}
        return replace(found, conclusion=_tls(controller), annotations=said_by, sends=True)
    what = _in_words(versions, ports) if versions else "PROXY"
    tls = (_tls(controller).reason,) if controller.terminated else ()
    return replace(
        found,
        conclusion=served(code, f"{what}: {said}"),
        versions=relayed,
        annotations=annotations,
        sends=True,
        proxy=True,
        remarks=(*tls, *found.remarks),
    )


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
