"""The rows of the providers' table, and how the value of an annotation is read.

There is one small reader for each way that providers have chosen.

A reader takes the value and the Service and returns what is sent on which ports. It raises ValueError, with
the problem, for a value that the provider's controller rejects or does not know.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from nodeagent.errors import one_line, quoted
from nodeagent.model.objects import ProxyVersion, Service, parse_bool
from nodeagent.typed_values import from_json

Sent = ProxyVersion | Literal["off"]

Sends = Mapping[int | None, Sent]
"""What one annotation says: ports and what is sent on each; under None, what holds for every other port.
A port that it does not cover is left to the next annotation that mentions it."""

Reader = Callable[[str, Service], Sends]

UNDOCUMENTED: ProxyVersion = "v1"
"""What a provider is taken to send whose version no source says: nginx, HAProxy, Envoy and Traefik accept
both. For what takes only v2 (agentgateway, by default), list the Service with its version."""

_Decoded = TypeVar("_Decoded", bound=msgspec.Struct)


class Switch(Struct, frozen=True):
    """One annotation that switches PROXY on.

    Attributes:
        key: the annotation; `{port}` in it is replaced by each of the Service's ports in turn.
        read: what its value means.
        otherwise_off: the controller silently takes an unknown value for "off".
        beside: other annotations that the reader uses, to be shown with it.
        alone: the controller rejects a Service in which two of these switches claim one port.
    """

    key: str
    read: Reader
    otherwise_off: bool = False
    beside: tuple[str, ...] = ()
    alone: bool = False


class Provider(Struct, frozen=True):
    """One kind of load balancer of one provider, and what that offers itself against short-circuiting.

    Attributes:
        name: as a person knows it.
        schemes: the part before `://` in `spec.providerID` of its Nodes; empty if it runs on any cloud.
        switches: in order of precedence. For each port, the first that mentions it decides; without any,
            PROXY is off, which is every provider's default.
        hostname: the annotation, ready to paste, that publishes a host name instead of the address; replace
            the name `lb.example.com` in it. Empty: none is known.
        ip_mode: since when and for which Services its controller sets `ipMode: Proxy`. Empty: it does not.
        ip_mode_on_request: the annotation, ready to paste, that makes it do so.
        applies: whether a Service's load balancer is of this kind, for providers that have several.
        doubt: why a Service may send no PROXY nevertheless; empty if it is certain.
    """

    name: str
    schemes: tuple[str, ...]
    switches: tuple[Switch, ...]
    hostname: str = ""
    ip_mode: str = ""
    ip_mode_on_request: str = ""
    applies: Callable[[Service], bool] = lambda _: True
    doubt: Callable[[Service], str] = lambda _: ""


def boolean(version: ProxyVersion) -> Reader:
    """As Go's strconv.ParseBool."""
    return lambda value, _: sent_on_all(version if parse_bool(value) else "off")


def words(meaning: Mapping[str, Sent], *, any_case: bool = False, trimmed: bool = False) -> Reader:
    """One of these words, exactly as written here, or in any case, or with spaces around it."""

    def read(value: str, _: Service) -> Sends:
        word = value.strip() if trimmed else value
        found = meaning.get(word.lower() if any_case else word)
        if found is None:
            raise ValueError(f"{quoted(value)} is not one of {', '.join(meaning)}")
        return sent_on_all(found)

    return read


TRUE_OR_FALSE = words({"true": UNDOCUMENTED, "false": "off"})
NUMBER = words({"1": "v1", "2": "v2"})
NUMBER_OR_NONE = words({"1": "v1", "2": "v2", "0": "off", "": "off"})
KIND_OF_HEADER = words({"v1": "v1", "v2": "v2", "v2-ssl": "v2", "v2-ssl-cn": "v2"})


def any_text(value: str, _: Service) -> Sends:
    """Any text switches PROXY on: `send-proxy-v2` version 2, all else version 1."""
    return sent_on_all("off" if not value else "v2" if value == "send-proxy-v2" else "v1")


def boolean_or_ports(version: ProxyVersion) -> Reader:
    """Read a boolean, `*`, or a list of the Service's port numbers; `1` and `0` are numbers.

    Spaces don't count. An empty value, and false, leave the ports to the next annotation.
    """

    def read(value: str, service: Service) -> Sends:
        if value not in {"0", "1"}:
            try:
                return sent_on_all(version) if parse_bool(value) else {}
            except ValueError:
                pass
        return star_or_ports(version)(value.replace(" ", ""), service)

    return read


def star_or_ports(version: ProxyVersion) -> Reader:
    """`*` for all ports, or a list of port numbers, which leaves other ports to the next annotation."""

    def read(value: str, _: Service) -> Sends:
        items = _items(value)
        return sent_on_all(version) if "*" in items else dict.fromkeys(map(_port, items), version)

    return read


def listed_ports(version: ProxyVersion) -> Reader:
    """Read a list of port numbers: the others are off."""
    return lambda value, _: {None: "off", **dict.fromkeys(map(_port, _items(value)), version)}


def star_or_node_ports(value: str, service: Service) -> Sends:
    """`*` anywhere for all ports, or a list of node ports; other numbers mean nothing."""
    items = _items(value)
    listed = {port.port for port in service.ports if port.node_port and str(port.node_port) in items}
    return sent_on_all("v1") if "*" in items else {None: "off", **dict.fromkeys(listed, "v1")}


def boolean_or_service_ports(value: str, _: Service) -> Sends:
    """Read a boolean as Go's strconv.ParseBool, or a list of the Service's port numbers; version 2."""
    try:
        return sent_on_all("v2" if parse_bool(value) else "off")
    except ValueError:
        return dict.fromkeys(map(_port, _items(value.replace(" ", ""))), "v2")


def star_or_port_names(value: str, service: Service) -> Sends:
    """`*` for all ports, or a list of the names of the Service's ports; other words mean nothing."""
    items = _items(value)
    listed = {port.port for port in service.ports if port.name in items and port.protocol == "TCP"}
    return sent_on_all("v1") if "*" in items else {None: "off", **dict.fromkeys(listed, UNDOCUMENTED)}


def one_of_two_filtered(keys: Sequence[str], port_keys: Sequence[str]) -> Reader:
    """Read a boolean of either key, meant for the ports that either of `port_keys` lists, if one is there.

    The second key of each is the older one, of which any text but a boolean is false. Two that contradict
    each other are an error. An empty list means no ports.
    """

    def read(_: str, service: Service) -> Sends:
        given = [service.annotations.get(key) for key in keys]
        said = [] if given[0] is None else [parse_bool(given[0])]
        said += [] if given[1] is None else [_is_true(given[1])]
        if len(set(said)) > 1:
            raise ValueError(f"{' and '.join(keys)} contradict each other")
        lists = [value for key in port_keys if (value := service.annotations.get(key)) is not None]
        if not said[0]:
            return sent_on_all("off")
        if len(set(lists)) > 1:
            raise ValueError(f"{' and '.join(port_keys)} contradict each other")
        if not lists:
            return sent_on_all("v1")
        return {None: "off", **dict.fromkeys(map(_port, _items(lists[0])), "v1")}

    return read


def target_group_attributes(value: str, _: Service) -> Sends:
    """Read a list of `name=value`: on if `proxy_protocol_v2.enabled` is `true`, off if it is `false`."""
    for item in _items(value):
        given, separator, setting = (part.strip() for part in item.partition("="))
        if given == "proxy_protocol_v2.enabled" and separator:
            return sent_on_all("v2" if parse_bool(setting) else "off")
    return {}


def member(word: str) -> Reader:
    """Read a list of features: on if this one is among them."""
    return lambda value, _: sent_on_all("v1" if word in _items(value) else "off")


class _LinodePort(msgspec.Struct):
    proxy_protocol: str = msgspec.field(default="", name="proxy-protocol")


linode_version = words({"v1": "v1", "v2": "v2", "none": "off"}, any_case=True)


def linode_port(value: str, service: Service) -> Sends:
    """JSON about one port: its field `proxy-protocol` has the version; without it, it says nothing."""
    given = _json(value, _LinodePort).proxy_protocol
    return linode_version(given, service) if given else {}


class _UpCloudProperties(msgspec.Struct):
    outbound_proxy_protocol: str = ""


class _UpCloudBackend(msgspec.Struct):
    name: str = ""
    properties: _UpCloudProperties = msgspec.field(default_factory=_UpCloudProperties)


class _UpCloudConfig(msgspec.Struct):
    backends: list[_UpCloudBackend] = msgspec.field(default_factory=list)


def upcloud_config(value: str, service: Service) -> Sends:
    """JSON whose `backends`, named as the Service's ports are, each have `outbound_proxy_protocol`."""
    numbers = {port.name: port.port for port in service.ports}
    said: dict[int | None, Sent] = {}
    meaning: Mapping[str, Sent] = {"v1": "v1", "v2": "v2", "": "off"}
    for backend in _json(value, _UpCloudConfig).backends:
        given = backend.properties.outbound_proxy_protocol
        version = meaning.get(given)
        if version is None:
            raise ValueError(f"outbound_proxy_protocol {quoted(given)} is not one of v1, v2")
        if backend.name in numbers:
            said[numbers[backend.name]] = version
    return said


def alibaba(value: str, service: Service) -> Sends:
    """`on` or `off`; for the Network Load Balancer in any case."""
    network = service.load_balancer_class == "alibabacloud.com/nlb"
    return words({"on": "v2", "off": "off"}, any_case=network)(value, service)


def aws_kind(service: Service) -> str:
    """Return which controller made it: `controller`, or in-tree `network` or `classic`."""
    # cloud-provider-aws: pkg/providers/v1/aws.go:2462-2562; in-tree NLBs never read the key for Classic ELBs,
    # and Services with a class are not its own. aws-load-balancer-controller: it serves the types `external`
    # and `nlb-ip`, and one class (--load-balancer-class; EKS Auto Mode's is eks.amazonaws.com/nlb).
    kind = service.annotations.get("service.beta.kubernetes.io/aws-load-balancer-type", "")
    if service.load_balancer_class is not None or kind in {"external", "nlb-ip"}:
        return "controller"
    return "network" if kind == "nlb" else "classic"


def of_oci_network(service: Service) -> bool:
    """Whether Oracle's load balancer is a network load balancer."""
    return service.annotations.get("oci.oraclecloud.com/load-balancer-type", "").lower() == "nlb"


DIGITALOCEAN_TYPE = "service.beta.kubernetes.io/do-loadbalancer-type"
"""The annotation that says which of its two load balancers it is."""


def digitalocean(value: str, service: Service) -> Sends:
    """Read a boolean, which a network load balancer makes an error."""
    sends = boolean("v1")(value, service)
    if service.annotations.get(DIGITALOCEAN_TYPE) == "REGIONAL_NETWORK" and sends != sent_on_all("off"):
        raise ValueError(
            f"a REGIONAL_NETWORK load balancer sends no PROXY header: set {DIGITALOCEAN_TYPE} to REGIONAL, "
            "or switch PROXY off in the ingress controller"
        )
    return sends


def digitalocean_doubt(service: Service) -> str:
    """Return why a load balancer without a type may be a network load balancer; empty if it has one."""
    if service.annotations.get(DIGITALOCEAN_TYPE):
        return ""
    return (
        "a network load balancer, the default since digitalocean-cloud-controller-manager 0.1.61, sends "
        f"none; {DIGITALOCEAN_TYPE} says which it is"
    )


def sent_on_all(what: Sent) -> Sends:
    """Return the same on every port."""
    return {None: what}


def _is_true(text: str) -> bool:
    try:
        return parse_bool(text)
    except ValueError:
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
