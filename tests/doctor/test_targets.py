"""What is connected to: the cluster's own load balancers and nothing else."""

import socket
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from itertools import chain, repeat
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest

from nodeagent.doctor import probing
from nodeagent.doctor.findings import Code
from nodeagent.doctor.paths import Target, conclude, works
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ProxyVersion, Service, Snapshot
from nodeagent.plan.balancers.this_node import AddressRules
from nodeagent.sources import connection_tests
from tests.cases import cases_of
from tests.plan.made_up import FACTS, config, desired, endpoint, ingress, point, service

CASES: dict[str, Any] = cases_of(__file__, "verdicts.yaml")
_V1: dict[int, ProxyVersion] = {80: "v1", 443: "v1"}
_SILENT: dict[int, ProxyVersion] = {}
_BALANCER = "lb.example.com"


def _targets(found: Service, versions: dict[int, ProxyVersion], facts: Facts = FACTS) -> tuple[Target, ...]:
    resolved = {_BALANCER: (ip_address("192.0.2.9"), ip_address("127.0.0.1"), ip_address("169.254.169.254"))}
    rules = AddressRules(Snapshot(), facts, config("loadBalancers: {refuse: [192.0.2.7]}"))
    return probing.find_targets([(found, versions)], {found.ref: "site.example.com"}, resolved, rules, facts)


def _endpoints(found: tuple[Target, ...]) -> list[str]:
    return [str(target.endpoint) for target in found]


def test_every_address_with_every_tcp_port() -> None:
    both = service(ips=("192.0.2.1", "2001:db8::1"), ports=("80", "443", "443/UDP"))
    found = _targets(both, _V1)
    assert _endpoints(found) == ["192.0.2.1:80", "192.0.2.1:443", "[2001:db8::1]:80", "[2001:db8::1]:443"]
    assert {str(target.server) for target in found} == {"10.96.0.7:80", "10.96.0.7:443"}
    in_both = _targets(replace(both, cluster_ips=(ip_address("10.96.0.7"), ip_address("fd00::7"))), _V1)
    assert str(in_both[-1].server) == "[fd00::7]:443"
    assert {target.host for target in found} == {"site.example.com"}
    assert {target.proxy for target in found} == {"v1"}


@pytest.mark.parametrize("address", CASES["never_asked"])
def test_what_can_be_no_load_balancers_is_never_connected_to(address: str) -> None:
    """Anyone who can write a status would have the doctor send requests to the cloud's metadata."""
    assert _targets(service(ips=(address,)), _V1) == ()


def test_the_api_server_is_never_connected_to() -> None:
    facts = replace(FACTS, api_servers=frozenset({endpoint("192.0.2.1:443")}))
    assert _endpoints(_targets(service(), _V1, facts)) == ["192.0.2.1:80"]


def test_a_load_balancer_has_a_limited_number_of_targets() -> None:
    many = service(ips=[f"198.51.100.{number}" for number in range(1, 100)])
    assert len(_targets(many, _V1)) == 64


def test_a_published_name_means_its_addresses() -> None:
    named = service(points=(point(hostname=_BALANCER), point(hostname="unknown.example.com")))
    assert probing.published_names([named]) == (_BALANCER, "unknown.example.com")
    found = _targets(named, _V1)
    assert _endpoints(found) == ["192.0.2.9:80", "192.0.2.9:443"]
    assert not any(target.vip for target in found)


def test_whether_the_object_says_that_it_is_short_circuited() -> None:
    """An externalIP is, whatever the status says of it."""
    points = (point("192.0.2.1"), *(point(f"192.0.2.{number}", mode="Proxy") for number in (2, 3)))
    found = _targets(replace(service(points=points), external_ips=(ip_address("192.0.2.3"),)), _V1)
    assert {str(target.endpoint.address): target.vip for target in found} == {
        "192.0.2.1": True,
        "192.0.2.2": False,
        "192.0.2.3": True,
    }


@pytest.mark.parametrize(("port", "tls"), CASES["asked"])
def test_how_a_port_is_asked(port: str, tls: list[bool]) -> None:
    number = int(port.partition(":")[0])
    (target,) = _targets(service(ports=(port,)), {number: "v2"})
    assert list(target.tls) == tls


def test_what_listens_behind_other_load_balancers_is_not_disturbed() -> None:
    database = service(ports=("3306:mysql", "443"))
    assert _endpoints(_targets(database, _SILENT)) == ["192.0.2.1:443"]
    assert _endpoints(_targets(database, {3306: "v1"})) == ["192.0.2.1:3306", "192.0.2.1:443"]


@pytest.mark.parametrize("case", CASES["requested"].values(), ids=CASES["requested"])
def test_the_name_that_is_asked_for(case: dict[str, Any]) -> None:
    both = [service("blue"), service("green", ips=("192.0.2.2",))]
    claims = [
        ingress(*hosts, name=f"i{number}", points=(point(at),), created=number)
        for number, (at, hosts) in enumerate(case["claims"])
    ]
    planned = desired(*both, *claims, options=config(case.get("config", "")))
    found = probing.choose_hosts(planned, case.get("given", ""), both, [each.ref for each in claims])
    assert {ref.name: host for ref, host in found.items()} == case["requested"]


def test_no_namespace_uses_up_all_targets() -> None:
    addresses = [f"198.51.100.{number}" for number in range(1, 100)]
    flood = [service(f"lb{number:02}", namespace="a", ips=addresses) for number in range(20)]
    honest = service("web", namespace="z")
    rules = AddressRules(Snapshot(), FACTS, config())
    found = probing.find_targets([(one, _V1) for one in (*flood, honest)], {}, {}, rules, FACTS)
    assert len([target for target in found if target.service.ref == honest.ref]) == 2
    assert len(found) == 1024


def test_a_port_443_that_is_not_tls_is_tested_as_what_it_is() -> None:
    """The relay answered: "is HAProxy running?" would be false."""

    class Site(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = endpoint(f"127.0.0.1:{server.server_port}")
        (port,) = service(ports=("443",)).ports
        target = Target(service(), port, here, "v1", vip=True, host="", tls=(True,), server=here)
        knowledge = probing.Knowledge({here: here}, frozenset({here}), None, {})
        (seen,) = probing.observe([target], knowledge)
        server.shutdown()
    assert conclude(seen) is not Code.RelayDown
    assert not seen.tls
    assert works(seen.load_balancer.plain)


@pytest.mark.parametrize(("seconds", "begun"), [(44.9, 4), (45.0, 0)])
def test_none_begins_after_45_seconds(seconds: float, begun: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a request in any of the rounds, nor a connection to see where it arrives."""
    here = endpoint("192.0.2.1:80")
    target = Target(service(), service().ports[0], here, None, vip=True, host="", tls=(False,), server=here)
    connecting = Mock(side_effect=TimeoutError)
    monkeypatch.setattr(probing, "time", Mock(monotonic=chain((0.0,), repeat(seconds)).__next__))
    monkeypatch.setattr(connection_tests, "time", Mock(monotonic=lambda: seconds))
    monkeypatch.setattr(socket, "create_connection", connecting)
    probing.observe([target], probing.Knowledge({here: here}, frozenset({here}), None, {}))
    assert len(connecting.mock_calls) == begun


def test_where_this_node_relays_each_address_and_port() -> None:
    planned = desired(service())
    relays = {str(match): str(relay) for match, relay in probing.relays_of(planned, config()).items()}
    (relay,) = {listener.bind.address for listener in planned.listeners}
    assert relays == {"192.0.2.1:80": f"{relay}:80", "192.0.2.1:443": f"{relay}:443"}
    without = config("dnat: {backend: none}")
    assert (
        probing.relays_of(desired(service(), options=without), without).keys()
        == probing.relays_of(planned, config()).keys()
    )
    assert probing.relays_of(planned, config("relay: {kind: service}")) == {}
