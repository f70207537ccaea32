"""One object asks for so many hosts and no more, and its annotations are no place to keep a book."""

from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

import pytest

from nodeagent.config.options import Config
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Ingress, Route, Service, ServiceRange, Snapshot
from nodeagent.plan.planner import plan
from nodeagent.sources.objects.decoding import (
    MOST_HOSTS,
    MOST_POINTS,
    MOST_PORTS,
    DecodingError,
    decode_ingress,
    decode_service,
    decode_service_range,
)
from nodeagent.sources.objects.gateway_api import decode_grpc_route, decode_http_route, decode_tls_route
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS


def _hosts(count: int) -> list[str]:
    return [f"h{number}.example.com" for number in range(count)]


def _ingress(hosts: list[str]) -> Ingress:
    rules = [{"host": host} for host in hosts]
    return decode_ingress({"metadata": {"name": "many"}, "spec": {"rules": rules}})


def test_hosts_of_an_ingress_beyond_the_limit_are_reported_and_left_out() -> None:
    assert len(_ingress(_hosts(MOST_HOSTS)).hosts) == MOST_HOSTS
    assert _ingress(_hosts(MOST_HOSTS)).problems == ()
    found = _ingress(_hosts(MOST_HOSTS + 5))
    assert list(found.hosts) == _hosts(MOST_HOSTS)
    assert found.problems == (f"more than {MOST_HOSTS} hosts: the rest is not read",)


def test_hosts_of_a_virtual_service_have_the_same_bound() -> None:
    (kind,) = [one for one in CONTROLLER_KINDS if one.kind == "VirtualService"]
    spec: dict[str, Any] = {"gateways": ["x"], "hosts": _hosts(MOST_HOSTS + 5)}
    found = kind.decode({"metadata": {"name": "many"}, "spec": spec})
    assert found is not None
    assert len(found.hosts) == MOST_HOSTS
    assert found.problems == (f"more than {MOST_HOSTS} hosts: the rest is not read",)
    assert plan(Snapshot(controller_routes=(found,)), Facts("node1"), Config()).remarks[-1] == (
        f"VirtualService default/many: more than {MOST_HOSTS} hosts: the rest is not read"
    )


@pytest.mark.parametrize("decode", [decode_http_route, decode_grpc_route, decode_tls_route])
def test_hosts_of_a_route_have_the_same_bound(decode: Callable[[dict[str, Any]], Route]) -> None:
    found = decode({"metadata": {"name": "many"}, "spec": {"hostnames": _hosts(MOST_HOSTS + 5)}})
    assert list(found.hostnames) == _hosts(MOST_HOSTS)
    (remark,) = plan(Snapshot(routes=(found,)), Facts("node1"), Config()).remarks[-1:]
    assert remark == f"{found.ref}: more than {MOST_HOSTS} hosts: the rest is not read"


def test_ports_of_a_service_have_a_bound_and_those_of_tcp_come_first() -> None:
    ports = [{"port": number, "protocol": "UDP"} for number in range(1, MOST_PORTS + 1)]
    assert _service({"ports": ports}).problems == ()
    found = _service({"ports": [*ports, {"port": 443}]})
    assert (len(found.ports), found.tcp_ports) == (MOST_PORTS, (443,))
    assert found.problems == (
        f"spec.ports: more than {MOST_PORTS} ports: the rest is not read, TCP ports first",
    )


def test_entries_of_a_status_have_a_bound() -> None:
    addresses = [{"ip": f"198.18.{number // 256}.{number % 256}"} for number in range(MOST_POINTS)]
    found = _service({}, addresses)
    assert (len(found.points), found.problems) == (MOST_POINTS, ())
    longer = _service({}, [*addresses, {"ip": "192.0.2.1"}, {"ip": "no address"}])
    assert longer.points == found.points
    assert longer.problems == (
        f"status.loadBalancer.ingress: the rest after {MOST_POINTS} entries is not read",
    )


def _service(spec: dict[str, Any], points: Sequence[dict[str, str]] = ()) -> Service:
    status = {"loadBalancer": {"ingress": list(points)}}
    found = decode_service(
        {"metadata": {"name": "lb"}, "spec": {"type": "LoadBalancer", **spec}, "status": status}
    )
    assert isinstance(found, Service)
    return found


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (4097, False)])
def test_a_long_annotation_is_not_read(length: int, *, kept: bool) -> None:
    annotations = {"example.com/a": "x" * length, "nodeagent.io/proxy-protocol": "v2"}
    found = decode_service(
        {"metadata": {"name": "lb", "annotations": annotations}, "spec": {"type": "LoadBalancer"}}
    )
    assert isinstance(found, Service)
    assert ("example.com/a" in found.annotations) == kept
    assert found.annotations["nodeagent.io/proxy-protocol"] == "v2"
    assert len(found.problems) == (0 if kept else 1)


def test_a_service_range_is_read_in_both_families() -> None:
    """As Kubernetes 1.33 writes it; one without ranges has none."""
    found = decode_service_range(
        b'{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12","fd00:10:96::/112"]}}'
    )
    networks = (ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/112"))
    assert found == ServiceRange("kubernetes", networks)
    assert decode_service_range({"metadata": {"name": "empty"}}) == ServiceRange("empty")


@pytest.mark.parametrize("cidrs", [["10.96.0.0/33"], ["10.96.0.0/12", "all"], [7], ["fe80::%eth0/64"]])
def test_a_service_range_that_can_not_be_read_is_an_error_of_that_object(cidrs: list[object]) -> None:
    """Half of its ranges would be as good as none: what is in the other half could be redirected."""
    with pytest.raises(DecodingError):
        decode_service_range({"metadata": {"name": "odd"}, "spec": {"cidrs": cidrs}})
