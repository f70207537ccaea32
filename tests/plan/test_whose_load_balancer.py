"""Every row of the table: a foreign class, a foreign cloud, its certificate, UDP alone."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeagent.config.options import LoadBalancerOptions
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.model.objects import PROXY_PROTOCOL, NodeAddresses, Service, Snapshot
from nodeagent.plan.identity.identify import Identity, cloud_of, identify
from nodeagent.plan.identity.providers import PROVIDERS
from nodeagent.plan.identity.rows import Provider
from nodeagent.plan.identity.ways_out import ways_out
from tests.plan.made_up import NODE, config, desired, of_service, relay_of, service
from tests.plan.test_providers import BETA, CASES, READ
from tests.plan.test_providers import DO as DIGITALOCEAN

HETZNER = "load-balancer.hetzner.cloud/uses-proxyprotocol"

_BY_NAME = {provider.name: provider for provider in PROVIDERS}
_ON = {name: annotations for name, annotations, ports in reversed(READ) if set(ports) >= {80, 443}}
"""Of each row with a switch, annotations by which it sends PROXY on 80 and 443."""


def _class(name: str) -> str | None:
    return "loxilb.io/loxilb" if name == "loxilb" else None


def _identity(found: Service, provider_id: str = "", text: str = "loadBalancers: {}") -> Identity:
    options = config(text).load_balancers if text else LoadBalancerOptions()
    return identify(found, options, provider_id)


def _own_cloud(row: Provider) -> str:
    return f"{row.schemes[0]}://1" if row.schemes else ""


@pytest.mark.parametrize(("name", "annotations"), _ON.items(), ids=_ON)
def test_a_row_counts_for_its_own_cloud_and_no_other(name: str, annotations: Mapping[str, str]) -> None:
    row = _BY_NAME[name]
    found = service(annotations=annotations, load_balancer_class=_class(name))
    own = _identity(found, _own_cloud(row))
    assert (own.proxy, own.provider) == (True, row)
    if row.schemes:
        other = "ionos://1"
        away = _identity(found, other)
        assert (away.code, away.proxy, away.provider) == ("ForeignAnnotation", False, None)
        told = " ".join((away.reason, *away.remarks))
        assert any(key in told for key in annotations)
        assert other in away.reason
        assert away.reserved, "a node of its own cloud relays it"


@pytest.mark.parametrize(("name", "annotations"), _ON.items(), ids=_ON)
def test_a_class_that_is_not_its_own_takes_it_away(name: str, annotations: Mapping[str, str]) -> None:
    """Kubernetes' own library skips a Service with any class."""
    row = _BY_NAME[name]
    found = service(annotations=annotations, load_balancer_class="metallb.universe.tf/metallb")
    away = _identity(found, _own_cloud(row))
    assert (away.proxy, away.announcer) == (False, "MetalLB")
    assert any("spec.loadBalancerClass is metallb.universe.tf/metallb" in remark for remark in away.remarks)
    unknown = _identity(
        service(annotations=annotations, load_balancer_class="example.com/own"), _own_cloud(row)
    )
    assert (unknown.code, unknown.provider) == ("ForeignAnnotation", None)


@pytest.mark.parametrize(("name", "annotations"), _ON.items(), ids=_ON)
def test_udp_alone_is_no_question(name: str, annotations: Mapping[str, str]) -> None:
    found = service(ports=("53:dns/UDP",), annotations=annotations, load_balancer_class=_class(name))
    for text in ("loadBalancers: {}", "loadBalancers: {services: [{namespace: ingress, name: blue}]}"):
        identity = _identity(found, _own_cloud(_BY_NAME[name]), text)
        assert (identity.code, identity.proxy, identity.stated) == ("NotProxy", False, True)


_NLB = {f"{BETA}/aws-load-balancer-type": "nlb"}
_TLS: dict[str, list[tuple[Mapping[str, str], list[int]]]] = CASES["tls"]
"""Of each row with certificates, annotations by which TLS ends there on ports 80 or 443, or on none."""


def test_every_row_with_a_certificate_has_its_case() -> None:
    assert {row.name for row in PROVIDERS if row.certificates} == _TLS.keys()


@pytest.mark.parametrize(
    ("name", "annotations", "ports"), [(name, *case) for name, cases in _TLS.items() for case in cases[1:]]
)
def test_other_spellings_of_a_certificate(
    name: str, annotations: Mapping[str, str], ports: list[int]
) -> None:
    found = service(ports=("80:http", "443:https"), annotations=annotations)
    assert _identity(found, _own_cloud(_BY_NAME[name])).terminated == tuple(ports)


@pytest.mark.parametrize("annotations", CASES["of_two"])
def test_where_nothing_tells_two_providers_apart_none_is_named(annotations: Mapping[str, str]) -> None:
    """The first of them would be a guess, and its fix another cloud's."""
    found = service(annotations=annotations)
    identity = _identity(found)
    assert identity.provider is None
    shown = " ".join((identity.reason, *identity.remarks))
    assert "(Hetzner)" not in shown
    assert "(DigitalOcean)" not in shown
    assert {"hostname", "ip-mode-on-request"}.isdisjoint(way.way for way in ways_out(found, identity, "v1"))
    assert getattr(_identity(found, "hcloud://1").provider, "name", "") == "Hetzner"


@pytest.mark.parametrize(("key", "value"), CASES["uncounted"])
def test_whatever_does_not_count_is_quoted_once(key: str, value: str) -> None:
    for others in ({}, {HETZNER: "true"}):
        identity = _identity(service(annotations={key: value, **others}), "hcloud://1")
        shown = " ".join((identity.reason, *identity.remarks))
        assert shown.count(f"{key}={value} does not count: spec.providerID is hcloud://1") == 1


@pytest.mark.parametrize("name", ["calicocloud", "tailscale-eu", "METALLB.io/metallb", "x/calico"])
def test_a_class_that_only_looks_like_one_is_nobodys(name: str) -> None:
    assert _identity(service(load_balancer_class=name), "hcloud://1").provider is None


def test_beside_a_port_with_tls_the_relay_is_offered_for_the_others_alone() -> None:
    annotations = {DIGITALOCEAN: "true", f"{BETA}/do-loadbalancer-certificate-id": "x"}
    found = service(ports=("80:http", "443:https"), annotations=annotations)
    (way,) = (way for way in ways_out(found, _identity(found)) if way.way == "nodeagent")
    assert way.steps[0].startswith("only for port 80")


@pytest.mark.parametrize("name", _TLS)
def test_a_port_on_which_tls_ends_is_never_relayed(name: str) -> None:
    """Not even if the Service is listed, and no hostname may lead to the relay."""
    row, (tls, ports) = _BY_NAME[name], _TLS[name][0]
    found = service(ports=("80:http", "443:https"), annotations={**_ON.get(name, {}), **tls})
    for text in ("loadBalancers: {}", "loadBalancers: {services: [{namespace: ingress, name: blue}]}"):
        identity = _identity(found, _own_cloud(row), text)
        assert (identity.provider, identity.terminated) == (row, tuple(ports))
        assert set(identity.versions).isdisjoint(ports)
        assert identity.code == "TerminatesTLS" if set(ports) == {80, 443} else identity.proxy
        planned = desired(found, options=config(text))
        assert {redirect.match.port for redirect in planned.dnat.redirects}.isdisjoint(ports)
        assert {listener.bind.port for listener in planned.listeners}.isdisjoint(ports)
    alone = service(ports=("443:https",), annotations=tls)
    identity = _identity(alone, _own_cloud(row))
    assert (identity.code, identity.provider) == ("TerminatesTLS", row)
    assert of_service(desired(alone)).code == "TerminatesTLS"
    assert "nodeagent" not in [way.way for way in ways_out(alone, identity, "v1")]
    if row.schemes:
        assert _identity(alone, "gce://p/z/i").terminated == (), "another cloud's certificate"


@pytest.mark.parametrize(("nodes", "provider"), CASES["nodes"])
def test_off_a_node_the_cloud_is_known_if_no_two_nodes_disagree(
    nodes: tuple[str, ...], provider: str | None
) -> None:
    found = tuple(
        NodeAddresses(f"n{index}", frozenset(), provider_id) for index, provider_id in enumerate(nodes)
    )
    identity = _identity(service(), cloud_of(Snapshot(nodes=found)))
    assert (identity.provider.name if identity.provider else None) == provider


@pytest.mark.parametrize(
    ("announcer", "sign"),
    [(name or "", sign) for name, signs in CASES["announcers"].items() for sign in signs],
)
def test_who_announces_an_address_sends_no_header(announcer: str, sign: Mapping[str, str] | str) -> None:
    found = service(load_balancer_class=sign) if isinstance(sign, str) else service(annotations=sign)
    identity = _identity(found)
    assert identity.announcer == announcer
    assert not identity.proxy
    if announcer:
        assert (identity.code, identity.stated) == ("NotProxy", True)
        assert identity.reason.startswith(f"no PROXY: {announcer} serves it ")
        listed = _identity(found, text="loadBalancers: {services: [{namespace: ingress, name: blue}]}")
        assert (listed.proxy, listed.announcer) == (True, announcer), (
            "a proxy in front of it sends the header"
        )


@pytest.mark.parametrize(
    ("key", "value", "times"),
    [
        (f"{BETA}/linode-loadbalancer-port-8443", '{"proxy-protocol":"v2"}', 1),
        (f"{BETA}/aws-load-balancer-target-group-attributes", "proxy_protocol_v2.placement=first", 1),
        (PROXY_PROTOCOL, "proxy-protocol", 0),
    ],
)
def test_a_key_that_switches_nothing_on_is_quoted_unless_it_decides(key: str, value: str, times: int) -> None:
    identity = _identity(service(annotations={key: value}))
    shown = " ".join((identity.reason, *identity.remarks))
    said = f"{key}={value} does not count: it switches PROXY on for no port of this Service"
    assert shown.count(said) == times
    assert shown.count(key) == 1


def test_a_sign_that_was_left_over_does_not_make_an_announcer_of_a_clouds_load_balancer() -> None:
    found = service(annotations={"metallb.universe.tf/address-pool": "p", HETZNER: "true"})
    assert _identity(found, "hcloud://1").announcer == ""
    assert _identity(found, "hcloud://1").proxy
    allocated = service(annotations={"metallb.io/ip-allocated-from-pool": "p", HETZNER: "true"})
    assert _identity(allocated, "hcloud://1").announcer == "MetalLB", "it wrote that itself"
    assert not _identity(allocated, "hcloud://1").proxy


def test_of_a_clouds_several_kinds_the_others_key_is_quoted_with_the_reason() -> None:
    classic = f"{BETA}/aws-load-balancer-proxy-protocol"
    found = service(annotations={classic: "*", **_NLB})
    identity = _identity(found, "aws:///eu/i-1")
    assert identity.code == "NotProxy"
    assert all(word in identity.reason for word in (f"{classic}=* does not count", "network"))
    octavia = {"loadbalancer.ovhcloud.com/class": "octavia", f"{BETA}/ovh-loadbalancer-proxy-protocol": "v2"}
    iolb = _identity(service(annotations=octavia), "openstack:///x")
    assert not iolb.proxy
    assert all(word in iolb.reason for word in ("does not count", "class iolb"))


def annotated(
    annotations: Mapping[str, str], text: str = "loadBalancers: {}", provider_id: str = ""
) -> Desired:
    """The plan for one annotated Service on a node of that cloud; only `text` lists anything."""
    node = replace(NODE, provider_id=provider_id)
    return desired(service(annotations=annotations), node=node, options=config(text))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_our_own_annotation_is_stronger_than_the_providers(version: str) -> None:
    for provider in ({}, {DIGITALOCEAN: "false"}, {DIGITALOCEAN: "nonsense"}):
        planned = annotated({PROXY_PROTOCOL: version, **provider})
        assert of_service(planned).code == "Annotated"
        assert {each.proxy for each in planned.listeners} == {version}


@pytest.mark.parametrize("value", ["V1", "true", "", "v1 ", "1", "v3", "x" * 10_000])
def test_a_bad_value_of_our_own_annotation_is_refused(value: str) -> None:
    """Nothing is guessed, not even from the provider's."""
    planned = annotated({PROXY_PROTOCOL: value, DIGITALOCEAN: "true"})
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "BadAnnotation")
    assert "is not one of v1, v2, off" in decision.reason
    assert len(decision.reason) < 200
    assert not planned.dnat.redirects


@pytest.mark.parametrize(
    ("provider_id", "code"), [(each, code) for code, ids in CASES["provider_ids"].items() for each in ids]
)
def test_an_annotation_is_believed_unless_the_node_is_of_another_cloud(provider_id: str, code: str) -> None:
    """Many a node has no providerID, or one that names no cloud."""
    assert of_service(annotated({DIGITALOCEAN: "true"}, provider_id=provider_id)).code == code


@pytest.mark.parametrize("annotations", CASES["believed_by_some"])
def test_on_nodes_of_all_clouds_the_relay_addresses_are_the_same(annotations: Mapping[str, str]) -> None:
    """Whatever a node believes: an author could choose annotations that move the addresses of others."""
    own = {PROXY_PROTOCOL: "v2"}
    colliding = [
        service(f"lb{index}", ips=(f"192.0.2.{index}",), created=index, annotations=own)
        for index in range(3, 90)
    ]
    options = config("relay: {ipv4: 169.254.66.0/25}")
    doubtful = service(annotations=annotations, created=0)
    plans = [
        desired(doubtful, *colliding, node=replace(NODE, provider_id=cloud), options=options)
        for cloud in ("digitalocean://1", "scaleway://1", "hcloud://1", "")
    ]
    found = [{each.ref.name: relay_of(planned, each.ref.name) for each in colliding} for planned in plans]
    assert any(found[0].values())
    assert found == found[:1] * len(found)
