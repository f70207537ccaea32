"""How the value of an annotation is read: one small reader for each way that controllers have chosen. Pure.

A reader of a switch returns what is sent on which ports, one of a certificate the ports on which TLS ends.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodeagent.errors import one_line, quoted
from nodeagent.model.objects import ProxyVersion, Service
from nodeagent.plan.identity.rows import Reader, RejectedError, Sends, Sent, TlsReader
from nodeagent.typed_values import from_json, parse_bool

_BETA = "service.beta.kubernetes.io"

_UNDOCUMENTED: ProxyVersion = "v1"
"""What a provider is taken to send whose version no source says (None in a row): nginx, HAProxy, Envoy and
Traefik accept both. For what takes only v2 (agentgateway, by default), list the Service with its version."""

_Decoded = TypeVar("_Decoded")


def otherwise_off(reader: Reader) -> Reader:
    """Return the same for a controller that silently takes an unknown value for "off"."""
    return replace(reader, otherwise_off=True)


def boolean(version: ProxyVersion | None = None) -> Reader:
    """As Go's strconv.ParseBool."""
    sent = version or _UNDOCUMENTED
    return Reader(
        lambda value, _: {None: sent if parse_bool(value) else "off"}, "`true` ¹", version or "v1 ²"
    )


def words(meaning: Mapping[str, Sent | None], *, any_case: bool = False, trimmed: bool = False) -> Reader:
    """One of these words, exactly as written here, or in any case, or with spaces around it."""

    def read(value: str, _: Service) -> Sends:
        word = value.strip() if trimmed else value
        word = word.lower() if any_case else word
        if word not in meaning:
            raise ValueError(f"{quoted(value)} is not one of {', '.join(meaning)}")
        return {None: meaning[word] or _UNDOCUMENTED}

    on = {word: sent or "v1 ²" for word, sent in meaning.items() if sent != "off"}
    how = " in any case" if any_case else " exactly" if [*on] == ["true"] else ""
    versions = dict.fromkeys(on.values())
    named = len(versions) > 1 and all(sent[1] in word for word, sent in on.items())
    sends = "as named" if named else ", ".join(versions)
    return Reader(read, ", ".join(f"`{word}`" for word in on) + how, sends)


TRUE_OR_FALSE = words({"true": None, "false": "off"})
TRUE_ELSE_OFF = otherwise_off(TRUE_OR_FALSE)
V2_IF_TRUE = otherwise_off(words({"true": "v2", "false": "off"}, any_case=True))
NUMBER = words({"1": "v1", "2": "v2", "": "off"})
NUMBER_OR_NONE = words({"1": "v1", "2": "v2", "0": "off", "": "off"})
KIND_OF_HEADER = words({"v1": "v1", "v2": "v2", "v2-ssl": "v2", "v2-ssl-cn": "v2"})


@partial(Reader, on="any text; `send-proxy`, `send-proxy-v2`", sends="v1, v2")
def any_text(value: str, _: Service) -> Sends:
    """Any text switches PROXY on: `send-proxy-v2` version 2, all else version 1."""
    return {None: "off" if not value else "v2" if value == "send-proxy-v2" else "v1"}


def boolean_or_ports(version: ProxyVersion) -> Reader:
    """Read a boolean, `*`, or a list of the Service's port numbers; `1` and `0` are numbers.

    Spaces don't count. An empty value, and false, leave the ports to the next annotation.
    """

    def read(value: str, _: Service) -> Sends:
        with suppress(ValueError):
            if value not in {"0", "1"}:
                return {None: version} if value == "*" or (value and parse_bool(value)) else {}
        return dict.fromkeys(_go_ports(value), version)

    return Reader(read, alone=True)


@Reader
def listed_ports(value: str, _: Service) -> Sends:
    """Read a list of port numbers, on which version 2 is sent: the others are off."""
    return {None: "off", **dict.fromkeys(map(_port, _items(value)), "v2")}


@partial(Reader, on="`*`, or node ports: `30080,30443`", sends="v1 ²")
def star_or_node_ports(value: str, service: Service) -> Sends:
    """`*` anywhere for all ports, or a list of node ports; other numbers mean nothing."""
    items = _items(value)
    listed = {port.port for port in service.ports if port.node_port and str(port.node_port) in items}
    return {None: "v1"} if "*" in items else {None: "off", **dict.fromkeys(listed, "v1")}


@Reader
def boolean_or_service_ports(value: str, _: Service) -> Sends:
    """Read a boolean as Go's strconv.ParseBool, or a list of the Service's port numbers; version 2."""
    try:
        return {None: "v2" if parse_bool(value) else "off"}
    except ValueError:
        return dict.fromkeys(_go_ports(value), "v2")


@partial(Reader, on="`*`, or names of ports: `http,https`", sends="v1 ²")
def star_or_port_names(value: str, service: Service) -> Sends:
    """`*` for all ports, or a list of the names of the Service's ports; other words mean nothing."""
    items = _items(value)
    listed = {port.port for port in service.ports if port.name in items and port.protocol == "TCP"}
    return {None: "v1"} if "*" in items else {None: "off", **dict.fromkeys(listed, _UNDOCUMENTED)}


STACKIT = ("lb.stackit.cloud/tcp-proxy-protocol", "yawol.stackit.cloud/tcpProxyProtocol")
_STACKIT_PORTS = (
    "lb.stackit.cloud/tcp-proxy-protocol-ports-filter",
    "yawol.stackit.cloud/tcpProxyProtocolPortsFilter",
)


@partial(Reader, on="`true` ¹; ports: `80,443`", sends="v1 ²", beside=(*STACKIT, *_STACKIT_PORTS))
def stackit(_: str, service: Service) -> Sends:
    """Read a boolean of either key, for the ports that either filter lists, if one is there; empty: no ports.

    Of the second, older key any text but a boolean is false.
    """
    values = [service.annotations.get(key) for key in STACKIT]
    switches = [] if values[0] is None else [parse_bool(values[0])]
    switches += [] if values[1] is None else [_is_true(values[1])]
    if len(set(switches)) > 1:
        raise ValueError(f"{' and '.join(STACKIT)} contradict each other")
    filters = [value for key in _STACKIT_PORTS if (value := service.annotations.get(key)) is not None]
    if not switches[0]:
        return {None: "off"}
    if len(set(filters)) > 1:
        raise ValueError(f"{' and '.join(_STACKIT_PORTS)} contradict each other")
    if not filters:
        return {None: "v1"}
    return {None: "off", **dict.fromkeys(map(_port, _items(filters[0])), "v1")}


@partial(Reader, on="`proxy_protocol_v2.enabled=true` among them", sends="v2")
def target_group_attributes(value: str, _: Service) -> Sends:
    """Read a list of `name=value`: on if `proxy_protocol_v2.enabled` is `true`, off if it is `false`."""
    for item in _items(value):
        name, _separator, setting = (part.strip() for part in item.partition("="))
        if name == "proxy_protocol_v2.enabled" and setting:  # empty, for one port: as for all
            return {None: "v2" if parse_bool(setting) else "off"}
    return {}


@partial(Reader, on="`proxy-protocol` among them", sends="v1")
def feature(value: str, _: Service) -> Sends:
    """Read a list of features: on if `proxy-protocol` is among them."""
    return {None: "v1" if "proxy-protocol" in _items(value) else "off"}


linode_version = words({"v1": "v1", "v2": "v2", "none": "off"}, any_case=True)


class _LinodePort(msgspec.Struct):
    proxy_protocol: str = msgspec.field(default="", name="proxy-protocol")
    protocol: str = ""
    tls_secret_name: str = msgspec.field(default="", name="tls-secret-name")


@partial(Reader, on=linode_version.on, sends=linode_version.sends)
def linode_port(value: str, service: Service) -> Sends:
    """JSON about one port: its field `proxy-protocol` has the version; without it, it says nothing."""
    version = _json(value, _LinodePort).proxy_protocol
    return linode_version.read(version, service) if version else {}


class _UpCloudProperties(msgspec.Struct):
    outbound_proxy_protocol: str = ""


class _UpCloudPart(msgspec.Struct):
    """A backend or a frontend, named as the Service's port is."""

    name: str = ""
    properties: _UpCloudProperties = msgspec.field(default_factory=_UpCloudProperties)
    tls_configs: list[object] | None = None


class _UpCloudConfig(msgspec.Struct):
    backends: list[_UpCloudPart] = []
    frontends: list[_UpCloudPart] = []


@partial(
    Reader, on="JSON: `backends[].properties.outbound_proxy_protocol`, by the ports' names", sends="as named"
)
def upcloud_config(value: str, service: Service) -> Sends:
    """JSON whose `backends`, named as the Service's ports are, each have `outbound_proxy_protocol`."""
    numbers = {port.name: port.port for port in service.ports}
    sends: dict[int | None, Sent] = {}
    meaning: Mapping[str, Sent] = {"v1": "v1", "v2": "v2", "": "off"}
    for backend in _json(value, _UpCloudConfig).backends:
        word = backend.properties.outbound_proxy_protocol
        version = meaning.get(word)
        if version is None:
            raise ValueError(f"outbound_proxy_protocol {quoted(word)} is not one of v1, v2")
        if backend.name in numbers:
            sends[numbers[backend.name]] = version
    return sends


ALIBABA_PORTS = tuple(f"{_BETA}/{name}-loadbalancer-protocol-port" for name in ("alibaba-cloud", "alicloud"))


@partial(Reader, otherwise_off=True, beside=ALIBABA_PORTS)
def alibaba(value: str, service: Service) -> Sends:
    """`on` or `off`; for the Network Load Balancer in any case. Listeners for HTTP and HTTPS send none."""
    network = service.load_balancer_class == "alibabacloud.com/nlb"
    sends = words({"on": "v2", "off": "off"}, any_case=network).read(value, service)
    listeners = next((text for key in ALIBABA_PORTS if (text := service.annotations.get(key))), "")
    return {**sends, **dict.fromkeys(tls_by_protocol("http", "https")(listeners, service), "off")}


DIGITALOCEAN_TYPE = f"{_BETA}/do-loadbalancer-type"
"""The annotation that says which of its two load balancers it is."""


@partial(Reader, beside=(DIGITALOCEAN_TYPE,))
def digitalocean(value: str, service: Service) -> Sends:
    """Read a boolean, which a network load balancer makes an error."""
    sends = boolean("v1").read(value, service)
    if service.annotations.get(DIGITALOCEAN_TYPE) == "REGIONAL_NETWORK" and sends != {None: "off"}:
        raise ValueError(
            f"a REGIONAL_NETWORK load balancer sends no PROXY header: set {DIGITALOCEAN_TYPE} to REGIONAL, "
            "or switch PROXY off in the ingress controller"
        )
    return sends


def digitalocean_doubt(service: Service) -> str:
    """Return what is assumed of a load balancer without a type; empty if it has one."""
    if service.annotations.get(DIGITALOCEAN_TYPE):
        return ""
    return (
        "nodeagent assumes a regional load balancer; a network load balancer, the default since "
        "digitalocean-cloud-controller-manager 0.1.61, sends no header: `doctl compute load-balancer list` "
        "shows which it is"
    )


_FORWARDED = "loadbalancer.openstack.org/x-forwarded-for"


@partial(Reader, otherwise_off=True, beside=(_FORWARDED,))
def openstack(value: str, service: Service) -> Sends:
    """Read `true`, `v1` or `v2`, compared as written; rejected next to `x-forwarded-for: "true"`."""
    sends = words({"true": "v1", "v1": "v1", "v2": "v2", "false": "off"}).read(value, service)
    if sends != {None: "off"} and service.annotations.get(_FORWARDED) == "true":
        raise RejectedError(f"the controller rejects it next to {_FORWARDED}: true")
    return sends


def tls_everywhere(_: str, service: Service) -> frozenset[int]:
    """TLS ends on every port."""
    return frozenset(service.tcp_ports)


def tls_for_https(value: str, service: Service) -> frozenset[int]:
    """TLS ends on every port if the value is `https`, in any case."""
    return frozenset(service.tcp_ports if value.lower() == "https" else ())


def tls_on(lists: Mapping[str, str], unless: str = "") -> TlsReader:
    """TLS ends on the ports that annotations list, each with its default: numbers, names, or `*` for all.

    `unless` is an annotation that, if it is true, passes TLS through.
    """

    def ports(_: str, service: Service) -> frozenset[int]:
        if unless and _is_true(service.annotations.get(unless, "")):
            return frozenset()
        items = {item for key in lists for item in _items(service.annotations.get(key, lists[key]))}
        return frozenset(
            port.port
            for port in service.ports
            if port.protocol == "TCP" and not items.isdisjoint({"*", str(port.port), port.name})
        )

    return ports


def tls_by_port(value: str, service: Service) -> frozenset[int]:
    """Read `ID`, or `PORT,PORT:ID;PORT:ID`: a certificate for all ports, or for those before the colon."""
    tls_ports: frozenset[int] = frozenset()
    for entry in value.split(";"):
        ports, separator, _ = entry.partition(":")
        if not separator and entry:
            return tls_everywhere(value, service)
        try:
            sends = boolean_or_ports("v1").read(ports, service) if separator else {}
        except ValueError:  # its controller rejects the Service
            continue
        tls_ports |= frozenset(port for port in service.tcp_ports if port in sends or None in sends)
    return tls_ports


def tls_by_protocol(*words: str) -> TlsReader:
    """Read `PROTOCOL:PORT,...`: TLS ends on the ports with one of these protocols, in any case."""

    def ports(value: str, service: Service) -> frozenset[int]:
        pairs = (item.partition(":") for item in _items(value))
        listed = {port.strip() for protocol, _, port in pairs if protocol.strip().lower() in words}
        return frozenset(port for port in service.tcp_ports if str(port) in listed)

    return ports


def linode_tls(value: str, service: Service) -> frozenset[int]:
    """Read the JSON about one port: TLS ends there if it has a certificate and its protocol is `https`."""
    port = _json(value, _LinodePort)
    default = service.annotations.get(f"{_BETA}/linode-loadbalancer-default-protocol", "tcp")
    ends = port.tls_secret_name and (port.protocol or default).lower() == "https"
    return frozenset(service.tcp_ports if ends else ())


class _TencentListener(msgspec.Struct):
    protocol: list[str] = []


def tencent_tls(value: str, service: Service) -> frozenset[int]:
    """Read JSON by port: TLS ends where one of the protocols is `HTTPS` or `TCP_SSL`."""
    listeners = _json(value, dict[str, _TencentListener])
    ends = {port for port, listener in listeners.items() if {"HTTPS", "TCP_SSL"} & {*listener.protocol}}
    return frozenset(port for port in service.tcp_ports if str(port) in ends)


def upcloud_tls(value: str, service: Service) -> frozenset[int]:
    """Read JSON whose `frontends`, named as the Service's ports are, each may have `tls_configs`."""
    frontends = _json(value, _UpCloudConfig).frontends
    names = {frontend.name for frontend in frontends if frontend.tls_configs}
    return frozenset(port.port for port in service.ports if port.protocol == "TCP" and port.name in names)


def tls_where(own: str, every: str, ends: Callable[[str], bool]) -> Mapping[str, TlsReader]:
    """TLS ends where the annotation of a port (`{port}` in `own`), or else that of every port, says so."""

    def ports(_: str, service: Service) -> frozenset[int]:
        texts = service.annotations
        modes = {port: texts.get(own.format(port=port)) or texts.get(every, "") for port in service.tcp_ports}
        return frozenset(port for port, mode in modes.items() if ends(mode))

    return {own: ports, every: ports}


def _is_true(text: str) -> bool:
    with suppress(ValueError):
        return parse_bool(text)
    return False


def _json(value: str, kind: type[_Decoded]) -> _Decoded:
    try:
        return from_json(value, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not the expected JSON: {one_line(error)}") from error


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _port(text: str) -> int:
    # What a person types: no sign, no other script's digits.
    if text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65536:
        return int(text)
    raise ValueError(f"{quoted(text)} is not a port number")


_GO_INTEGER = re.compile(r"\+?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|[1-9][0-9]*)", re.ASCII)


def _go_ports(value: str) -> list[int]:
    """Return the ports of a list as Go's strconv.ParseInt with base 0 reads each: `80`, `0x50`, `0120`."""
    return [_go_port(item) for item in value.replace(" ", "").split(",")]


def _go_port(text: str) -> int:
    if len(text) <= 20 and _GO_INTEGER.fullmatch(text):
        octal = re.fullmatch(r"\+?0([0-7]+)", text)
        number = int(octal[1], 8) if octal else int(text, 0)
        if 0 < number < 65536:
            return number
    raise ValueError(f"{quoted(text)} is not a port number")
