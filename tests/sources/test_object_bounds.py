"""One object asks for so many hosts and no more, and its annotations are no place to keep a book."""

import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from nodeagent.config.options import Config
from nodeagent.model import objects as model
from nodeagent.model.facts import Facts
from nodeagent.plan.planner import Planner, plan
from nodeagent.sources.objects import api, decoding, kinds
from nodeagent.sources.objects.decoding import MOST_HOSTS

MOST_POINTS, MOST_PORTS = 5000, 1000


def _hosts(count: int) -> list[str]:
    return [f"h{number}.example.com" for number in range(count)]


def _ingress(hosts: list[str]) -> model.Ingress:
    rules = [{"host": host} for host in hosts]
    return decoding.decode_ingress({"metadata": {"name": "many"}, "spec": {"rules": rules}})


def test_hosts_of_an_object_beyond_the_limit_are_reported_and_left_out() -> None:
    most, hosts = _ingress(_hosts(MOST_HOSTS)), _hosts(MOST_HOSTS + 5)
    assert (len(most.hosts), most.problems) == (10_000, ())
    named = {"metadata": {"name": "many"}}
    ingress = _ingress(hosts)
    service = _KINDS["VirtualService"]({**named, "spec": {"gateways": ["x"], "hosts": hosts}})
    route = kinds.decode_route({**named, "spec": {"hostnames": hosts}}, "HTTPRoute")
    assert isinstance(service, model.ControllerRoute)
    assert list(ingress.hosts) == list(service.hosts) == list(route.hostnames) == hosts[:MOST_HOSTS]
    for snapshot, ref in (
        (model.Snapshot(ingresses=(ingress,)), "Ingress default/many"),
        (model.Snapshot(controller_routes=(service,)), "VirtualService default/many"),
        (model.Snapshot(routes=(route,)), "HTTPRoute default/many"),
    ):
        remark = f"{ref}: more than {MOST_HOSTS} hosts: the rest is not read"
        assert plan(snapshot, Facts("node1"), Config()).remarks[-1] == remark


def test_aliases_of_an_ingress_count_as_its_hosts() -> None:
    """Patterns, ports and what has no `www.` are none."""
    aliases = ",".join([*_hosts(MOST_HOSTS), "~^www", "*", "a.example.com:80", "x" * 300])
    keys = {"nginx.ingress.kubernetes.io/server-alias": aliases}
    found = decoding.decode_ingress({"metadata": {"name": "many", "annotations": keys}})
    assert list(found.hosts) == _hosts(MOST_HOSTS)
    keys = {"nginx.ingress.kubernetes.io/from-to-www-redirect": "true"}
    rules = [{"host": host} for host in ("www.example.com", "*.example.com", "b.example.com")]
    found = decoding.decode_ingress(
        {"metadata": {"name": "www", "annotations": keys}, "spec": {"rules": rules}}
    )
    assert found.hosts[3:] == ("example.com", "www.b.example.com")


def test_ports_of_a_service_have_a_bound_and_those_of_tcp_come_first() -> None:
    ports = [{"port": number, "protocol": "UDP"} for number in range(1, MOST_PORTS + 1)]
    assert _service({"ports": ports}).problems == ()
    found = _service({"ports": [*ports, {"port": 443}]})
    assert (len(found.ports), found.tcp_ports) == (MOST_PORTS, (443,))
    assert [f"spec.ports: more than {MOST_PORTS} " in problem for problem in found.problems] == [True]


def test_entries_of_a_status_have_a_bound() -> None:
    addresses = [{"ip": f"198.18.{number // 256}.{number % 256}"} for number in range(MOST_POINTS)]
    found = _service({}, addresses)
    assert (len(found.points), found.problems) == (MOST_POINTS, ())
    longer = _service({}, [*addresses, {"ip": "192.0.2.1"}, {"ip": "no address"}])
    assert longer.points == found.points
    (problem,) = longer.problems
    assert all(word in problem for word in ("status.loadBalancer.ingress: ", f" {MOST_POINTS} "))


def _service(
    spec: dict[str, Any], points: Sequence[dict[str, str]] = (), annotations: dict[str, str] | None = None
) -> model.Service:
    status = {"loadBalancer": {"ingress": list(points)}}
    metadata = {"name": "lb", "annotations": annotations}
    found = decoding.decode_service(
        {"metadata": metadata, "spec": {"type": "LoadBalancer", **spec}, "status": status}
    )
    assert isinstance(found, model.Service)
    return found


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (4097, False)])
def test_a_long_annotation_is_not_read(length: int, *, kept: bool) -> None:
    marks = {"example.com/a": "x" * length, "nodeagent.io/proxy-protocol": "v2"}
    found = _service({}, annotations=marks)
    assert ("example.com/a" in found.annotations) == kept
    assert found.annotations["nodeagent.io/proxy-protocol"] == "v2"
    assert len(found.problems) == (0 if kept else 1)


def test_a_service_range_is_read_in_both_families() -> None:
    """As Kubernetes 1.33 writes it; one without ranges has none."""
    found = kinds.decode_service_range(
        b'{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12","fd00:10:96::/112"]}}'
    )
    networks = (ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/112"))
    assert found == model.ServiceRange("kubernetes", networks)
    assert kinds.decode_service_range({"metadata": {"name": "empty"}}) == model.ServiceRange("empty")


@pytest.mark.parametrize("cidrs", [["10.96.0.0/33"], ["10.96.0.0/12", "all"], [7], ["fe80::%eth0/64"]])
def test_a_service_range_that_can_not_be_read_is_an_error_of_that_object(cidrs: list[object]) -> None:
    """Half of its ranges would be as good as none: what is in the other half could be redirected."""
    with pytest.raises(api.DecodingError):
        kinds.decode_service_range({"metadata": {"name": "odd"}, "spec": {"cidrs": cidrs}})


LARGEST = 1_500_000
"""Bytes of an object that etcd takes."""
COSTS_AT_MOST = 1_300_000
"""Bytes of memory that a decoded object takes, whatever is in it: that of 10,000 hosts of usual length."""


def held(value: object, seen: set[int]) -> int:
    if id(value) in seen or value is None or isinstance(value, type | Enum):
        return 0
    seen.add(id(value))
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple):
        parts = value
    elif not isinstance(value, str | int):
        parts = [getattr(value, name, None) for name in getattr(value, "__slots__", ())]
        parts = [*parts, *getattr(value, "__dict__", {}).values()]
    return sys.getsizeof(value) + sum(held(part, seen) for part in parts)


_KINDS = {kind.kind: kind.decode for kind in reversed(kinds.OPTIONAL_KINDS)}
_TEXTS: list[tuple[Callable[[bytes], object | None], Callable[[list[str]], dict[str, Any]]]] = [
    (decoding.decode_ingress, lambda texts: {"rules": [{"host": text} for text in texts]}),
    (decoding.decode_ingress, lambda texts: {"tls": [{"hosts": texts}]}),
    (_KINDS["HTTPRoute"], lambda texts: {"hostnames": texts}),
    (_KINDS["IngressRoute"], lambda texts: {"routes": [{"match": f"Host(`{text}`)"} for text in texts]}),
    (_KINDS["VirtualService"], lambda texts: {"hosts": texts, "gateways": ["x"]}),
    (
        decoding.decode_service,
        lambda texts: {"type": "LoadBalancer", "ports": [{"name": text, "port": 80} for text in texts]},
    ),
]


@pytest.mark.parametrize("length", [200, LARGEST // 4 - 10])
@pytest.mark.parametrize("text", ["h", "\N{GRINNING FACE}"], ids=ascii)
@pytest.mark.parametrize(("decode", "full"), _TEXTS)
def test_no_texts_cost_more_memory_than_the_limit(
    decode: Callable[[bytes], object | None],
    full: Callable[[list[str]], dict[str, Any]],
    text: str,
    length: int,
) -> None:
    """Though each of them is short enough, and they are few enough: together they are long. Or one is."""
    texts = [f"{text * length}{number}" for number in range(LARGEST // (length * len(text.encode()) + 20))]
    value = decode(msgspec.json.encode({"metadata": {"name": "full"}, "spec": full(texts)}))
    assert value is not None
    assert held(value, set()) <= COSTS_AT_MOST


def test_what_is_beyond_a_limit_is_reported_once() -> None:
    """However many of them there are: neither a host nor the report of it can be long."""
    found = _ingress(["x" * 254, *("y" * 300 + str(number) for number in range(99)), "a.example.com"])
    assert found.hosts == ("a.example.com",)
    assert [": 100 not read" in problem for problem in found.problems] == [True]
    long = _ingress([f"{number:04}{'x' * 249}" for number in range(3000)])
    assert (len(long.hosts), "more than 524288 bytes " in long.problems[0]) == (524288 // 253, True)
    odd = _service({"externalIPs": [f"no address {number}" for number in range(1001)]})
    assert len(odd.problems) == 11
    assert all(word in odd.problems[0] for word in ("spec.externalIPs: ", " 1000 "))
    assert odd.problems[-1].startswith("991 ")
    marks = {f"example.com/{number}": "x" * 4000 for number in range(20)}
    service = _service({}, annotations={**marks, "nodeagent.io/proxy-protocol": "v2"})
    assert (len(service.annotations), service.annotations["nodeagent.io/proxy-protocol"]) == (8, "v2")
    assert " 32768 " in service.problems[0]


_fields = cache(msgspec.structs.fields)


def _paths(shape: type, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in _fields(shape):
        name, kind = field.name, _only(field.type)
        inner = _only(typing.get_args(kind)[0]) if typing.get_origin(kind) is list else kind
        if inner is not kind or inner is str or typing.get_origin(kind) is dict:
            yield (*above, name)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _paths(inner, (*above, name))


@cache
def _only(hint: Any) -> Any:  # noqa: ANN401 - a type, or a generic one
    union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return next(one for one in typing.get_args(hint) if one is not type(None)) if union else hint


_VALID = {"type": "LoadBalancer", "origin": "Selector", "operator": "In", "value": "2001:db8::{:x}"}
_VALID |= dict.fromkeys(("name", "namespace"), "n{}")
_ADDRESSES = {"ip", "address", "addresses", "clusterIPs", "clusterIP", "externalIPs"}


def _filled(shape: type, grows: tuple[str, ...], count: int, number: int = 0) -> dict[str, Any]:
    """An object with everything in it once, and what is at the path so often, or so long."""
    made: dict[str, Any] = {}
    for one in _fields(shape):
        kind = _only(one.type)
        within = grows[1:] if grows[:1] == (one.name,) else ("-",)
        times = count if not within else 1
        is_list = typing.get_origin(kind) is list
        inner = _only(typing.get_args(kind)[0]) if is_list else kind
        if inner is str:
            word = "2001:db8::{:x}" if one.name in _ADDRESSES else _VALID.get(one.name, "q{}")
            word = "2001:db8:{:x}::/64" if "idr" in one.name.lower() else word
            texts = [word.format(at if is_list else number) for at in range(times if is_list else 1)]
            made[one.encode_name] = texts if is_list else texts[0] + "x" * (times - 1)
        elif inner is int:
            made[one.encode_name] = number % 60_000 + 1
        elif typing.get_origin(inner) is dict:
            made[one.encode_name] = {f"q{at}": f"q{at}" for at in range(times)}
        elif issubclass(inner, msgspec.Struct):
            items = [_filled(inner, within, count, at) for at in range(times)]
            made[one.encode_name] = items if is_list else items[0]
    return made


_SHAPES: list[tuple[Callable[[bytes], object | None], type]] = [
    (decoding.decode_service, api.Service),
    (decoding.decode_ingress, api.Ingress),
    (kinds.decode_ingress_class, api.IngressClass),
    (decoding.decode_node, api.Node),
    (decoding.decode_relay_service, api.Service),
    (decoding.decode_relay_endpoints, api.EndpointSlice),
    (decoding.decode_api_servers, api.EndpointSlice),
    (kinds.decode_namespace, api.Head),
    (kinds.decode_service_range, api.ServiceCIDR),
    (kinds.decode_gateway, api.Gateway),
    (kinds.decode_listener_set, api.ListenerSet),
    (_KINDS["HTTPRoute"], api.Route),
]


_PER_BYTE = 10
"""Bytes of memory, and calls of functions in a pass, that a byte of an object may cost."""
_LISTS = [
    (name, hint)
    for name, hint in typing.get_type_hints(model.Snapshot).items()
    if typing.get_origin(hint) is tuple
]
_FIELDS = {typing.get_args(hint)[0]: name for name, hint in _LISTS}
"""The snapshot's collections, by what is in them."""


# In the largest, ASCII costs less.
@pytest.mark.parametrize(
    ("text", "size"),
    [("q", 20_000), ("\N{GRINNING FACE}q", 20_000), ("\N{GRINNING FACE}q", LARGEST)],
    ids=ascii,
)
@pytest.mark.parametrize(
    ("decode", "shape", "path"),
    [(decode, shape, path) for decode, shape in _SHAPES for path in _paths(shape)],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_whatever_grows_in_an_object_it_costs_little_for_each_byte_or_is_refused(
    decode: Callable[[bytes], object | None], shape: type, path: tuple[str, ...], text: str, size: int
) -> None:
    one, two = (len(msgspec.json.encode(_filled(shape, path, count))) for count in (1, 2))
    document = msgspec.json.encode(_filled(shape, path, size // (two - one + 5)))
    document = document.replace(b'"q', f'"{text}'.encode())
    try:
        value = decode(document)
    except api.DecodingError:
        return
    assert held(value, set()) <= min(1_500_000, _PER_BYTE * len(document) + 4096)
    assert decode(msgspec.json.encode(_filled(shape, ("-",), 1))) is not None
    if type(value) in _FIELDS and size < LARGEST:
        assert calls_in_a_pass({_FIELDS[type(value)]: (value,)}) <= _PER_BYTE * len(document) + 4096


def calls_in_a_pass(collections: Mapping[str, Any]) -> int:
    """The calls of functions in a pass with these objects: they grow with the CPU time, and don't vary."""
    count = 0

    def see(_: types.FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    planner, snapshot = Planner(Config()), model.Snapshot(**collections)
    sys.setprofile(see)
    try:
        planner.plan(snapshot, Facts("node1"))
    finally:
        sys.setprofile(None)
    return count


def test_addresses_of_load_balancers_are_not_looked_into_before_their_number_is() -> None:
    addresses = [{"ip": f"198.18.{number // 250}.{number % 250}"} for number in range(MOST_POINTS)]
    marked = {"nodeagent.io/proxy-protocol": "v2"}
    found = _service({"ports": [{"port": 443}], "clusterIPs": ["10.96.0.1"]}, addresses, marked)
    services = tuple(
        replace(found, ref=model.ObjectRef("Service", "team", f"lb{number}")) for number in range(3)
    )
    assert calls_in_a_pass({"services": services}) <= 40 * 3 * MOST_POINTS


def test_routes_and_gateways_cost_little_for_each_comparison() -> None:
    """32 Gateways of 64 listeners, each with a selector as large as it may be."""
    rules = {"matchLabels": {f"label{number}": "x" for number in range(64)}}
    allowed = {"namespaces": {"from": "Selector", "selector": rules}}
    listeners = [
        {"name": f"l{number}", "port": 443, "protocol": "HTTPS", "allowedRoutes": allowed}
        for number in range(64)
    ]
    gateways = tuple(
        kinds.decode_gateway({"metadata": {"name": f"g{number}"}, "spec": {"listeners": listeners}})
        for number in range(32)
    )
    parents = [{"name": f"g{number}"} for number in range(32)]
    routes = tuple(
        kinds.decode_route(
            {"metadata": {"name": f"r{n}"}, "spec": {"hostnames": [f"h{n}.test"], "parentRefs": parents}},
            "HTTPRoute",
        )
        for n in range(50)
    )
    labels = {f"label{number}": "x" for number in range(64)}
    collections = {"gateways": gateways, "namespaces": (model.Namespace("default", labels),)}
    alone = calls_in_a_pass({**collections, "routes": routes[:1]})
    assert alone <= 4 * 32 * 64 * 64
    assert calls_in_a_pass({**collections, "routes": routes}) <= alone + 15 * 50 * 32 * 64


def test_a_selector_with_very_many_rules_is_an_error_of_that_object() -> None:
    def gateway(count: int, **expression: object) -> dict[str, Any]:
        selector = {"matchLabels": {f"label{n}": "x" for n in range(count)}, "matchExpressions": [expression]}
        allowed = {"namespaces": {"from": "Selector", "selector": selector}}
        listener = {"name": "web", "port": 443, "protocol": "HTTPS", "allowedRoutes": allowed}
        return {"metadata": {"name": "public"}, "spec": {"listeners": [listener]}}

    values = [f"v{number}" for number in range(60)]
    assert kinds.decode_gateway(gateway(3, key="a", operator="In", values=values)).listeners
    with pytest.raises(api.DecodingError, match="more than 64 labels, expressions and values"):
        kinds.decode_gateway(gateway(4, key="a", operator="In", values=values))


def test_labels_of_a_namespace_that_are_longer_than_any_real_ones_are_an_error() -> None:
    def labels(length: int) -> bytes:
        return msgspec.json.encode({"metadata": {"name": "n", "labels": {"a": "x" * length}}})

    assert kinds.decode_namespace(labels(65_500)).name == "n"
    with pytest.raises(api.DecodingError, match="more than 65536 bytes"):
        kinds.decode_namespace(labels(65_536))


def test_the_endpoints_of_a_slice_are_bounded_although_each_has_all_ports() -> None:
    slice_ = {
        "metadata": {"name": "relay"},
        "endpoints": [{"addresses": [f"192.0.2.{number}"]} for number in range(200)],
        "ports": [{"port": number} for number in range(1, 201)],
    }
    assert len(decoding.decode_relay_endpoints(slice_)) == MOST_POINTS
