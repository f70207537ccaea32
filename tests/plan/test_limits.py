"""The limits of what is given out, the listed and then the oldest first; and the relay addresses."""

from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.options import Config
from nodeagent.model.decisions import DecisionStatus, LoadBalancerDecision
from nodeagent.model.objects import PROXY_PROTOCOL, Service, by_age
from nodeagent.plan.balancers.capacity import allocate
from tests.cases import cases_of
from tests.plan.made_up import config, desired, hosts, ingress, of_name, point, service


@pytest.mark.parametrize(
    ("limits", "listed", "codes", "reason"), cases_of(__file__, "cases.yaml")["listeners"]
)
def test_listeners_are_those_of_the_oldest_load_balancers(
    limits: str, listed: str, codes: dict[str, str], reason: str
) -> None:
    """The first is the oldest; a listed Service takes nothing of its namespace's share."""
    found = []
    for age, path in enumerate(codes):
        namespace, _, name = path.partition("/")
        found.append(_load_balancer(namespace, name, [443] if name == "small" else [80, 443], age))
    options = config(f"limits: {{{limits}}}\nloadBalancers: {{services: [{listed}]}}")
    decisions = _decided(*found, options=options)
    for path, code in codes.items():
        assert decisions[path].status is (DecisionStatus.REFUSED if code else DecisionStatus.SERVED)
        assert not code or (decisions[path].code == code and reason in decisions[path].reason)


def test_older_services_that_become_load_balancers_leave_each_namespace_its_first_listeners() -> None:
    """Three namespaces could fill a node's listeners, and push out what another one was served with."""
    older = [
        _load_balancer(f"team-{team}", f"lb{number}", ports=range(1000, 1040), number=number)
        for team in "abc"
        for number in range(10)
    ]
    listed = _load_balancer("shop", "listed", ports=[443], number=98)
    young = _load_balancer("shop", "web", ports=range(1000, 1050), number=99)
    more = _load_balancer("shop", "more", ports=range(2000, 2050), number=100)
    options = config("loadBalancers: {services: [{namespace: shop, name: listed}]}")
    decisions = _decided(*older, listed, young, more, options=options)
    assert decisions["shop/listed"].status is decisions["shop/web"].status is DecisionStatus.SERVED
    assert decisions["shop/more"].code == "TooManyListeners"
    served = [each for each in decisions.values() if each.status is DecisionStatus.SERVED]
    assert len(served) == 25


def test_older_services_that_become_load_balancers_leave_each_namespace_its_first_relay_addresses() -> None:
    """Thirteen namespaces could use up the range, and take the address that another one was served with."""
    older = [
        _load_balancer(f"team-{team}", f"lb{number}", ports=[443], number=number)
        for team in "abcdefghijklm"
        for number in range(20)
    ]
    young = _load_balancer("shop", "web", ports=[443], number=99)
    before, after = _decided(*older[:240], young), _decided(*older, young)
    assert before["shop/web"].status is after["shop/web"].status is DecisionStatus.SERVED
    refused = [each.code for each in after.values() if each.status is DecisionStatus.REFUSED]
    assert refused == ["RangeExhausted"] * 7


def test_in_a_small_range_the_first_load_balancer_of_a_namespace_comes_first() -> None:
    """A /28 has fourteen addresses: a twentieth of them is none. A listed one is not counted."""
    older = [_load_balancer("team-a", f"lb{number}", ports=[443], number=number) for number in range(20)]
    names = ("listed", "web", "more")
    own = [_load_balancer("shop", name, [443], number) for number, name in enumerate(names, start=90)]
    listed = "loadBalancers: {services: [{namespace: shop, name: listed}]}"
    options = config(f"relay: {{ipv4: 169.254.66.0/28}}\n{listed}")
    decisions = _decided(*older, *own, options=options)
    assert [decisions[each.ref.path].code for each in own] == ["Listed", "Annotated", "RangeExhausted"]


@pytest.mark.parametrize(
    "odd", [{"cluster_ips": ()}, {"ports": ["443/UDP"]}, {"ips": ["127.0.0.1"]}, {"ips": ["198.18.97.0"]}]
)
def test_what_can_not_be_served_takes_no_place(odd: dict[str, Any]) -> None:
    """The last one publishes an address and port of an older one, of another namespace."""
    older = _load_balancer("team-a", "first", ports=[443], number=0)
    its = {"ports": ["443"], **odd}
    without = service("odd", namespace="shop", annotations={PROXY_PROTOCOL: "v2"}, created=1, **its)
    young = _load_balancer("shop", "web", ports=[443], number=2)
    options = config("limits: {loadBalancersPerNamespace: 1}", proxies=[])
    decisions = _decided(older, without, young, options=options)
    served = [path for path, each in decisions.items() if each.status is DecisionStatus.SERVED]
    assert served == ["shop/web", "team-a/first"]


def test_addresses_times_ports_have_a_bound() -> None:
    """Each pair is a redirect; a listed Service has no such bound."""
    addresses = tuple(f"198.18.1.{number}" for number in range(1, 101))
    ports = tuple(map(str, range(1000, 1021)))
    large = service(ips=addresses, ports=ports, annotations={PROXY_PROTOCOL: "v2"})
    refused = desired(large, options=config(proxies=[])).load_balancers[0]
    assert refused.code == "TooManyAddresses"
    assert all(word in refused.reason for word in ("100 addresses", "21 TCP ports", "2048"))
    listed = desired(large, options=config(proxies=[large.ref.name]))
    assert len(listed.dnat.redirects) == 2100


_EIGHT = [f"198.18.1.{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("its", "code"),
    [
        (_EIGHT, "Annotated"),
        ([*_EIGHT, "198.18.1.8"], "TooManyListeners"),
        (["198.18.1.1", "2001:db8::1"], "TooManyListeners"),
    ],
)
def test_eight_addresses_of_a_family_count_as_one_listener(its: list[str], code: str) -> None:
    only = _load_balancer("shop", "web", ports=[443], number=1, ips=its)
    options = config("limits: {listenersPerNamespace: 1, addressesPerService: 9}", proxies=[])
    assert _decided(only, options=options)["shop/web"].code == code


def test_redirects_of_a_namespace_count_against_its_listeners() -> None:
    """Thirty-two Services of two thousand redirects each were 65,536 on every node."""
    addresses = [[f"198.18.{number}.{each}" for each in range(1, 65)] for number in range(32)]
    flood = [
        _load_balancer("tenant", f"lb{number}", ports=range(1000, 1032), number=number, ips=its)
        for number, its in enumerate(addresses)
    ]
    honest = _load_balancer(
        "shop", "web", ports=[80, 443], number=99, ips=[f"198.19.0.{n}" for n in range(1, 9)]
    )
    planned = desired(*flood, honest, options=config(proxies=[]))
    owners = Counter(one.load_balancer.namespace for one in planned.dnat.redirects)
    assert owners["tenant"] == 8 * 256, "of the first one: a second one's would be more than 400 listeners"
    assert owners["shop"] == 16


def test_the_notes_on_a_namespaces_objects_are_bounded_and_hide_no_others() -> None:
    problems = tuple(f"spec.rules[{number}]: odd" for number in range(10))
    flood = [ingress(f"a{n}.example.com", name=f"a{n}", namespace="a", problems=problems) for n in range(300)]
    honest = ingress("z.example.com", namespace="z", problems=("its own",))
    remarks = desired(*flood, honest).remarks
    assert len(remarks) < 50
    assert any("Ingress z/" in remark for remark in remarks)
    assert [remark for remark in remarks if " 2968 more " in remark]


def _decided(*found: Service, options: Config | None = None) -> dict[str, LoadBalancerDecision]:
    return {each.load_balancer.path: each for each in desired(*found, options=options).load_balancers}


def _load_balancer(
    namespace: str, name: str, ports: Iterable[int], number: int, ips: Sequence[str] = ()
) -> Service:
    return service(
        name,
        namespace=namespace,
        ips=ips or (f"198.18.{ord(namespace[-1])}.{number}",),
        ports=map(str, ports),
        created=number,
        annotations={PROXY_PROTOCOL: "v2"},
    )


@pytest.mark.parametrize("limit", ["hostnames", "hostnamesPerNamespace"])
def test_a_load_balancer_that_is_created_later_brings_no_hostname_before_those_that_have_their_place(
    limit: str,
) -> None:
    """Though the claim is older: its status named an address that no Service had yet."""
    early = ingress("early.example.com", name="early", points=(point("192.0.2.9"),), created=0)
    later = ingress("a.example.com", "b.example.com", name="later", created=5)
    options = config(f"limits: {{{limit}: 2}}", proxies=("blue",))
    before = desired(service(), early, later, options=options)
    assert {line.split()[1] for line in hosts(before)} == {"a.example.com", "b.example.com"}
    taker = service("taker", ips=("192.0.2.9",), created=9, annotations={PROXY_PROTOCOL: "v1"})
    after = desired(service(), early, later, taker, options=options)
    assert {line.split()[1] for line in hosts(after)} == {"a.example.com", "b.example.com"}
    assert of_name(after, "early.example.com").code.startswith("TooManyHostnames")


networks: st.SearchStrategy[IPv4Network | IPv6Network] = st.sampled_from(
    ["10.9.0.0/24", "10.9.0.0/29", "10.9.0.0/30", "fd00::/112", "fd00::/126"]
).map(ip_network)
clusters = st.lists(
    st.builds(service, st.from_regex(r"[a-z]{1,3}", fullmatch=True), created=st.integers(0, 9) | st.none()),
    max_size=12,
    unique_by=lambda found: found.ref,
)


@given(clusters, networks)
def test_addresses_are_unique_and_such_as_a_host_may_have(
    cluster: list[Service], network: IPv4Network | IPv6Network
) -> None:
    """Never the network's own, never IPv4's broadcast address."""
    found = allocate(sorted(cluster, key=by_age), network)
    assert len(set(found.values())) == len(found)
    spare = {network.network_address} | ({network.broadcast_address} if network.version == 4 else set())
    for address in found.values():
        assert address in network
        assert address not in spare


@pytest.mark.parametrize("network", ["10.9.0.0/31", "10.9.0.0/32", "fd00::/128"])
def test_a_range_without_room_gives_nothing(network: str) -> None:
    assert allocate([service()], ip_network(network)) == {}
