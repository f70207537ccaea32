"""Which addresses the node's Service proxy catches: rules of kube-proxy's own shape, in a real kernel."""

import subprocess
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from nodeagent.linux import programs
from nodeagent.model.addresses import Endpoint, Family, IPAddress
from nodeagent.model.facts import InterfaceAddress
from nodeagent.sources.node import caught_addresses
from tests.components.relay.node import isolated
from tests.testbed.kube_proxy import iptables_rules, nftables_rules
from tests.testbed.services import INGRESS_SERVICE, ServicePort, ServiceRules

CAUGHT, CAUGHT_6 = (INGRESS_SERVICE.within((family,)).load_balancer_ips[0] for family in (4, 6))
OTHER = ip_address("203.0.113.99")
FAMILIES: tuple[tuple[Family, str, str], ...] = (
    (4, "192.0.2.10", "10.244.0.0/16"),
    (6, "2001:db8::10", "fd00:10:244::/56"),
)


def run(command: str, script: str = "") -> None:
    done = subprocess.run(command.split(), input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def nftables_mode(made: ServiceRules = INGRESS_SERVICE) -> None:
    for family, node, pods in FAMILIES:
        service = made.within((family,))
        run("nft -f -", nftables_rules([service], ip_address(node), ip_network(pods)))


def iptables_mode(variant: str, made: ServiceRules = INGRESS_SERVICE) -> None:
    for family, _, pods in FAMILIES:
        text = iptables_rules([made.within((family,))], ip_network(pods), "")
        run(f"ip{'6' if family == 6 else ''}tables-{variant}-restore --noflush", text)


def caught(*wanted: IPAddress) -> frozenset[IPAddress]:
    """Of the addresses, those that are caught; nothing may stay unread."""
    found, notes = caught_addresses([Endpoint(address, 443) for address in wanted], ())
    assert notes == ()
    return found


OTHER_PORTS = replace(
    INGRESS_SERVICE, ports=(ServicePort("odd", 444, 0, 444), ServicePort("more", 4430, 0, 4430))
)


@pytest.mark.parametrize("mode", ["nftables", "nft", "legacy"])
@isolated
def test_a_rule_for_another_port_shows_nothing(mode: str) -> None:
    """As anyone has one made who can write a Service with `externalIPs`."""
    if mode == "nftables":
        nftables_mode(OTHER_PORTS)
    else:
        iptables_mode(mode, OTHER_PORTS)
    assert caught(CAUGHT, CAUGHT_6) == frozenset()
    theirs = [Endpoint(CAUGHT, 4430), Endpoint(CAUGHT_6, 444)]
    assert caught_addresses(theirs, ())[0] == {CAUGHT, CAUGHT_6}


@isolated
def test_only_the_service_proxys_own_rules_count() -> None:
    run(
        "nft -f -",
        "add table inet nodeagent\n"
        "add map inet nodeagent lb4 { type ipv4_addr . inet_service : ipv4_addr . inet_service; }\n"
        f"add element inet nodeagent lb4 {{ {CAUGHT} . 443 : 169.254.66.1 . 443 }}\n",
    )
    run(f"iptables-nft -t nat -A OUTPUT -d {CAUGHT} -p tcp --dport 443 -j ACCEPT")
    run(f"iptables-legacy -t nat -A OUTPUT -d {CAUGHT} -p tcp --dport 443 -j ACCEPT")
    assert caught(CAUGHT) == frozenset()


@isolated
def test_looking_makes_no_legacy_table() -> None:
    """iptables-legacy-save would: it is not run where there is none."""
    assert caught(CAUGHT) == frozenset()
    assert Path("/proc/self/net/ip_tables_names").read_text(encoding="ascii") == ""


@pytest.mark.parametrize("interface", ["kube-ipvs0", "kube-dummy-if"])
def test_an_address_on_the_interface_of_an_ipvs_proxy_is_caught(interface: str) -> None:
    """kube-proxy in ipvs mode, and kube-router."""
    standing = [InterfaceAddress(CAUGHT, 32, interface), InterfaceAddress(OTHER, 24, "eth0")]
    assert caught_addresses([Endpoint(CAUGHT, 443), Endpoint(OTHER, 443)], standing)[0] == {CAUGHT}


def test_nothing_is_read_where_nothing_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most clusters have no load balancer in ipMode Proxy."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "_SEARCH", "")
    assert caught_addresses([], (), frozenset({CAUGHT})) == (frozenset(), ())


def test_what_can_not_be_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is then no evidence; what was caught before counts on, so that no busy program withdraws it."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "_SEARCH", "")
    found, notes = caught_addresses([Endpoint(CAUGHT, 443)], ())
    assert found == frozenset()
    assert all(word in notes[0] for word in ("ipMode: Proxy", "no nft program"))
    assert caught_addresses([Endpoint(OTHER, 443)], (), frozenset({CAUGHT}))[0] == {CAUGHT}
