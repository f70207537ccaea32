"""identify(): whose load balancer a Service is, how that is known, and what follows for each port.

In order of precedence: the configuration, nodeagent's own annotation, the controller that serves the Service.
That controller is known by `spec.loadBalancerClass`, by what it writes to the Service itself, or by the
cloud of the Nodes; if none of these says anything, by the annotations alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.config.options import LoadBalancerOptions, ProxyService
from nodeagent.model.decisions import Conclusion, Decision, refused, served, skipped
from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL, ProxyVersion, Service, Snapshot
from nodeagent.plan.identity.providers import KNOWN_SCHEMES, PROVIDERS
from nodeagent.plan.identity.rows import Provider, Reading, certificates_of, read_row, shown
from nodeagent.typed_values import parse_bool

LISTED = "Listed"
"""The code of what loadBalancers.services decides: an administrator named the Service."""

_ABOUT_PROXY = re.compile("proxy[-_.]?proto", re.IGNORECASE)
_SWITCHES = [switch for row in PROVIDERS for switch in row.switches.items()]
_READ = tuple(key.partition("{port}")[0] for switch, reader in _SWITCHES for key in (switch, *reader.beside))
"""The beginnings of the annotations that some controller reads."""

_OWN_WORDS: Mapping[str, ProxyVersion | None] = {"v1": "v1", "v2": "v2", "off": None}


@dataclass(frozen=True, slots=True)
class Identity(Decision):
    """Whose load balancer a Service is, and what follows.

    Attributes:
        provider: the row of its controller; None if that is unknown.
        known_by: what says so, in words; empty if nothing does.
        versions: the TCP ports on which it sends PROXY and does not terminate TLS.
        terminated: the TCP ports on which it terminates TLS, which a relay can't replace.
        annotations: those that decide, as found: a policy may depend on them.
        sends: whether it sends PROXY on any port; `proxy`: on one where TLS does not end.
        reserved: another node may take it for a PROXY load balancer: all keep the same relay address for it.
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
    """Return the `spec.providerID` by which the cloud is known: this node's, else that of the only cloud."""
    if snapshot.node is not None:
        return snapshot.node.provider_id
    provider_ids = {cloud_scheme(node.provider_id): node.provider_id for node in snapshot.nodes}
    clouds = sorted(provider_ids.keys() & KNOWN_SCHEMES)
    distinct = {tuple(row for row in PROVIDERS if scheme in row.schemes) or scheme for scheme in clouds}
    return provider_ids[clouds[0]] if len(distinct) == 1 else ""


def opt_out(annotations: Mapping[str, str]) -> str | None:
    """Return why an object with these annotations is excluded, also if the value is not a boolean."""
    value = annotations.get(EXCLUDE)
    if value is None:
        return None
    try:
        return f"annotation {EXCLUDE}: {value}" if parse_bool(value) else None
    except ValueError as error:
        return f"ignored, because its annotation {EXCLUDE} can't be parsed: {error}"


def identify(service: Service, options: LoadBalancerOptions, provider_id: str) -> Identity:
    """Decide for one Service; `provider_id` is as `cloud_of` returns it. Pure."""
    if any(entry.path == service.ref.path for entry in options.ignore):
        return Identity(skipped("Ignored", "listed in loadBalancers.ignore"))
    controller = _controller(service, provider_id)
    if service.ports and not service.tcp_ports:
        return replace(controller.known, conclusion=skipped("NotProxy", "no PROXY: it has no TCP port"))
    entry = next((entry for entry in options.services if entry.path == service.ref.path), None)
    if entry is not None:
        return _listed(controller, entry)
    if reason := opt_out(service.annotations):
        return replace(controller.known, conclusion=skipped("ExcludedByAnnotation", reason))
    if not options.detect:
        conclusion = _unknown("loadBalancers.detect is false")
        return replace(controller.known, conclusion=conclusion, stated=False)
    return _by_own_annotation(controller) or _by_controller(controller)


@dataclass(frozen=True, slots=True)
class _Controller:
    """Who serves a Service, and what its annotations say; `elsewhere`: other rows say that it sends PROXY.

    `known` is what is known of it whatever decides: its `annotations` are those by which it terminates TLS.
    """

    service: Service
    known: Identity
    readings: tuple[Reading, ...]
    elsewhere: bool

    def without_proxy(
        self, conclusion: Conclusion, *, reserved: bool = False, stated: bool = True
    ) -> Identity:
        """Return the conclusion that it sends no PROXY; if TLS ends there, that it terminates TLS."""
        if self.known.terminated:
            conclusion, stated = self.tls, True
        return replace(self.known, conclusion=conclusion, reserved=reserved, stated=stated)

    def with_proxy(
        self,
        code: str,
        said: str,
        versions: Mapping[int, ProxyVersion],
        annotations: Mapping[str, str],
        remarks: Iterable[str] = (),
    ) -> Identity:
        """Return what it is if it sends PROXY on these ports; of a Service without ports, on any."""
        ports = self.service.tcp_ports
        conclusion = skipped("NotProxy", f"no PROXY on any of its ports: {said}")
        known, remarks = self.known, (*remarks, *self.known.remarks)
        if ports and not versions:
            return replace(self.without_proxy(conclusion), remarks=remarks)
        # Istio's gateways read no header at the port of their health checks, 15021 (istio/istio#39868).
        unread = {*known.terminated, *({15021} if len(ports) > 1 else ())}
        relayed = {port: version for port, version in versions.items() if port not in unread}
        sending = replace(known, sends=True, reserved=True, remarks=remarks)
        if ports and not relayed:
            return replace(sending, conclusion=self.tls, annotations={**annotations, **known.annotations})
        header = _in_words(versions, ports) if versions else "PROXY"
        return replace(
            sending,
            conclusion=served(code, f"{header}: {said}"),
            versions=relayed,
            annotations=annotations,
            proxy=True,
            remarks=(self.tls.reason, *remarks) if known.terminated else remarks,
        )

    @property
    def tls(self) -> Conclusion:
        """That it terminates TLS, and where."""
        ports = ", ".join(map(str, self.known.terminated))
        keys = ", ".join(f"{key}={shown(value)}" for key, value in self.known.annotations.items())
        return skipped(
            "TerminatesTLS",
            f"it terminates TLS on port {ports} ({'annotation ' if keys else ''}{keys}), which a relay can't "
            "replace: nothing is relayed there",
        )


def _controller(service: Service, provider_id: str) -> _Controller:
    rows, known_by, why_not = _rows(service, provider_id)
    read = [reading for row in PROVIDERS if (reading := read_row(row, service))]
    readings = tuple(reading for reading in read if reading.row in rows and reading.row.applies(service))
    counted = {key for reading in readings for key in reading.annotations}
    notes: dict[str, str] = {}
    for stray in (reading for reading in read if reading.annotations.keys().isdisjoint(counted)):
        why = why_not
        if stray.row in rows:
            why = f"it is read only for {stray.row.kind}; this is {stray.row.kind_of(service) or 'another'}"
        notes.setdefault(stray.keys, f"{stray.keys} does not count: {why}")
    of_kind = [row for row in rows if row.applies(service)]
    certificates = {row: annotations for row in of_kind if (annotations := certificates_of(row, service))}
    tls = {key: ports for annotations in certificates.values() for key, ports in annotations.items()}
    for key in (key for row in PROVIDERS if row not in rows for key in certificates_of(row, service)):
        if key not in tls:
            said = f"annotation {key}={shown(service.annotations[key])}"
            notes.setdefault(said, f"{said} does not count: {why_not}")
    mentioned = {PROXY_PROTOCOL, *(key for reading in read for key in reading.annotations)}
    for key, value in sorted(service.annotations.items()):
        is_read = key.startswith(_READ)
        if key not in mentioned and _ABOUT_PROXY.search(value if is_read else key):
            said = f"annotation {key}={shown(value)}"
            unread = "nodeagent knows no controller that reads it"
            why = "it switches PROXY on for no port of this Service" if is_read else unread
            notes[said] = f"{said} does not count: {why}"
    speaking = [*(reading.row for reading in readings), *certificates]
    decided = next(iter(speaking or (of_kind if known_by else ())), None)
    if len({row.family for row in speaking}) > 1:
        # Nothing tells them apart: to name one would be a guess, and its fix may be another cloud's.
        decided = None
    known = Identity(
        _unknown("no annotation says so", [*notes.values()]),
        provider=decided,
        known_by=known_by or ("its annotations" if decided else ""),
        terminated=tuple(sorted(frozenset[int]().union(*tls.values()))),
        annotations={key: service.annotations[key] for key in tls},
        remarks=tuple(notes.values()),
    )
    elsewhere = any(reading.proxy and reading.row not in rows for reading in read)
    return _Controller(service, known, readings, elsewhere)


def _rows(service: Service, provider_id: str) -> tuple[Sequence[Provider], str, str]:
    """Return the rows that may be the controller's, what says so, and why the others' keys don't count."""
    if (name := service.load_balancer_class) is not None:
        said = f"spec.loadBalancerClass {shown(name)}"
        why_not = (
            f"spec.loadBalancerClass is {shown(name)}, and a controller skips a Service whose class is not "
            "its own"
        )
        if of_class := [row for row in PROVIDERS if row.serves_class(name)]:
            return of_class, said, why_not
    for row in PROVIDERS:  # MetalLB's class is free text, what it writes is not
        if row.written and (key := _starting(service, row.written)):
            return [row], f"the annotation {key}, which {row.name} writes", f"{row.name} serves this Service"
    if name is not None:
        return [], said, why_not
    scheme = cloud_scheme(provider_id)
    signed = ((row, key) for row in PROVIDERS if (key := _starting(service, row.signs)))
    announcer = next((sign for sign in signed if sign[0].announces or _silent(service, scheme)), None)
    if scheme in KNOWN_SCHEMES:
        own = [row for row in PROVIDERS if scheme in row.schemes]
        # A row without schemes counts by its key alone, so it is never taken for the cloud's.
        beside = [row for row in PROVIDERS if not (row.schemes or row.sends_none) and _has_key(row, service)]
        if beside or not announcer or any(_has_key(row, service) for row in own):
            said = shown(provider_id)
            return [*own, *beside], f"spec.providerID {said}", f"spec.providerID is {said}"
    if announcer:
        row, key = announcer
        return [row], f"the annotation {key}", f"{row.name} serves this Service"
    return [row for row in PROVIDERS if not row.sends_none], "", ""


def _silent(service: Service, scheme: str) -> bool:
    """Whether neither its Nodes nor a key for PROXY name another cloud, whose sign is then left over."""
    return scheme not in KNOWN_SCHEMES and not any(
        row.switches and _has_key(row, service) for row in PROVIDERS
    )


def _starting(service: Service, starts: tuple[str, ...]) -> str:
    return next((key for key in sorted(service.annotations) if key.startswith(starts)), "")


def _has_key(row: Provider, service: Service) -> bool:
    """Whether an annotation is there that one row reads."""
    starts = tuple(key.partition("{port}")[0] for key in (*row.switches, *row.certificates))
    return row.applies(service) and bool(_starting(service, starts))


def cloud_scheme(provider_id: str) -> str:
    """Return the cloud in a `spec.providerID`; two clouds write none before `://`."""
    scheme, separator, _ = provider_id.partition("://")
    if separator:
        return scheme
    # oci-cloud-controller-manager writes the instance's OCID alone, Alibaba's `region.instance`.
    if provider_id.startswith("ocid1."):
        return "oci"
    return "alicloud" if re.fullmatch(r"[a-z]{2,}-[a-z0-9-]+\.i-\w+", provider_id) else ""


def _listed(controller: _Controller, entry: ProxyService) -> Identity:
    ports = controller.service.tcp_ports
    remarks = (
        f"port {port}: listed in loadBalancers.services, but not a TCP port of the Service"
        for port in sorted(set(entry.ports) - set(ports))
    )
    versions = {port: entry.proxy_protocol for port in ports if not entry.ports or port in entry.ports}
    return controller.with_proxy(LISTED, "listed in loadBalancers.services", versions, {}, remarks)


def _by_own_annotation(controller: _Controller) -> Identity | None:
    value = controller.service.annotations.get(PROXY_PROTOCOL)
    if value is None:
        return None
    said = f"annotation {PROXY_PROTOCOL}={shown(value)}"
    if value not in _OWN_WORDS:
        reason = f"{said} is not one of {', '.join(_OWN_WORDS)}; nothing is relayed for it"
        return replace(controller.known, conclusion=refused("BadAnnotation", reason))
    version = _OWN_WORDS[value]
    if version is None:
        return controller.without_proxy(skipped("NotProxy", f"no PROXY: {said}"))
    versions = dict.fromkeys(controller.service.tcp_ports, version)
    return controller.with_proxy("Annotated", said, versions, {PROXY_PROTOCOL: value})


def _by_controller(controller: _Controller) -> Identity:
    readings, known, row = controller.readings, controller.known, controller.known.provider
    reserved = controller.elsewhere or any(reading.proxy for reading in readings)
    if conclusion := _unusable(readings):
        return replace(known, conclusion=conclusion, reserved=reserved)
    if readings:
        # Of several that say the same, nothing shows whose it is.
        said = readings[0].said if row else "; ".join(reading.keys for reading in readings)
        if not readings[0].proxy:
            return controller.without_proxy(skipped("NotProxy", f"no PROXY: {said}"), reserved=reserved)
        doubt = row.doubt(controller.service) if row else ""
        remarks = (f"{readings[0].said}: {doubt}",) if doubt else ()
        annotations = {key: value for reading in readings for key, value in reading.annotations.items()}
        return controller.with_proxy("Annotated", said, readings[0].versions, annotations, remarks)
    if row is not None and row.sends_none:
        reason = (
            f"no PROXY: {row.name} serves it ({known.known_by}), and adds no header; if something in "
            "front of it does, list it in loadBalancers.services"
        )
        return controller.without_proxy(skipped("NotProxy", reason), reserved=reserved)
    first, *others = known.remarks or ("",)
    if controller.elsewhere and first:
        reason = f"{first}; if it sends PROXY, list it in loadBalancers.services"
        identity = controller.without_proxy(skipped("ForeignAnnotation", reason), reserved=True, stated=False)
        return replace(identity, remarks=tuple(others))
    stated = row is not None and row.off_unless_annotated and not known.remarks
    identity = controller.without_proxy(known.conclusion, reserved=reserved, stated=stated)
    return replace(identity, remarks=())


def _unusable(readings: Sequence[Reading]) -> Conclusion | None:
    for reading in readings:
        if reading.problem:
            return refused("BadAnnotation", f"{reading.said}: {reading.problem}; nothing is relayed for it")
    if len({frozenset(reading.versions) for reading in readings}) <= 1:
        return None
    return refused(
        "Contradiction",
        f"{'; '.join(reading.keys for reading in readings)}: they contradict each other: "
        "list it in loadBalancers.services or loadBalancers.ignore",
    )


def _unknown(why: str, notes: Sequence[str] = ()) -> Conclusion:
    said = "; ".join([why, *notes])
    return skipped("NotProxy", f"not known to send PROXY: {said}, nor is it listed in loadBalancers.services")


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
