"""The findings on a Service, and the fixes in their order: first what needs no agent."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import Code
from nodeagent.doctor.load_balancer_findings import (
    LoadBalancerObservation,
    annotate,
    load_balancer_finding,
    provider_of,
    remedies,
)
from nodeagent.model.desired import refused, served, skipped
from nodeagent.model.objects import Service
from nodeagent.plan.detection.decision import Detection
from nodeagent.plan.detection.providers import PROVIDERS
from nodeagent.plan.detection.readers import Provider
from tests.plan.made_up import NODE, point, service

VIP = service("blue", points=(point("192.0.2.1", mode="VIP"),))
PROXY = service("blue", points=(point("192.0.2.1", mode="Proxy"),))
NAMED = service("blue", points=(point(hostname="lb.example.com"),))
EMPTY = service("blue", points=())
_BY_NAME = {provider.name: provider for provider in PROVIDERS}


PROXIED = Detection(served("Annotated", "said so"), proxy=True)


def _code(
    found: Service,
    *paths: Code,
    detected: Detection = PROXIED,
    off_node: bool = False,
    by_fleet: bool = False,
) -> Code:
    seen = LoadBalancerObservation(found, detected, None if off_node else paths, None, by_fleet=by_fleet)
    return Code[load_balancer_finding(seen, "v1.33.2").code]


@pytest.mark.parametrize(
    ("found", "paths", "code"),
    [
        (VIP, (Code.ShortCircuitedAndCut, Code.RemediedByDnat), Code.ShortCircuited),
        (VIP, (Code.RelayDown, Code.RemediedByDnat), Code.Troubled),
        (VIP, (Code.RemediedByDnat, Code.RemediedByHosts), Code.LoadBalancerRemedied),
        (VIP, (Code.ShortCircuitedAndFine,), Code.Tolerated),
        (VIP, (Code.WorksWithoutProxy,), Code.Tolerated),
        (VIP, (Code.PathUnclear, Code.RemediedByDnat), Code.LoadBalancerUnclear),
        (VIP, (), Code.LoadBalancerUnclear),
        (PROXY, (Code.ThroughLoadBalancer,), Code.IPModeProxy),
        (PROXY, (Code.ShortCircuitedAndCut,), Code.IPModeIgnored),
        (PROXY, (Code.LoadBalancerDown,), Code.Troubled),
        (NAMED, (Code.ThroughLoadBalancer,), Code.HostnameOnly),
        (NAMED, (Code.LoadBalancerDown,), Code.Troubled),
        (EMPTY, (), Code.NoAddress),
        # Nothing was seen.
        (PROXY, (), Code.LoadBalancerUnclear),
        (NAMED, (), Code.LoadBalancerUnclear),
        (PROXY, (Code.PathUnclear,), Code.LoadBalancerUnclear),
    ],
)
def test_what_is_said_of_a_load_balancer(found: Service, paths: tuple[Code, ...], code: Code) -> None:
    assert _code(found, *paths) is code


PLAIN = Detection(skipped("NotProxy", "said so"))
UNSTATED = replace(PLAIN, stated=False)


def test_one_that_sends_no_line_is_troubled_only_if_its_controller_demands_it() -> None:
    assert _code(VIP, Code.ShortCircuitedAndFine, detected=PLAIN) is Code.NotProxy
    assert _code(VIP, Code.Undetected, detected=PLAIN) is Code.Troubled
    ignored = Detection(skipped("Ignored", "said so"), proxy=True)
    assert _code(VIP, Code.ShortCircuitedAndCut, detected=ignored) is Code.Ignored


@pytest.mark.parametrize(
    ("found", "detected", "code"),
    [
        (VIP, PROXIED, Code.ShortCircuitedByObject),
        (VIP, PLAIN, Code.NotProxy),
        (VIP, UNSTATED, Code.ProxyUnknown),
        (VIP, Detection(refused("Contradiction", "said so")), Code.ProxyUnknown),
        (NAMED, UNSTATED, Code.HostnameOnly),
        (PROXY, PROXIED, Code.IPModeProxy),
        (NAMED, PROXIED, Code.HostnameOnly),
    ],
)
def test_off_the_node_the_objects_are_believed_as_far_as_they_go(
    found: Service, detected: Detection, code: Code
) -> None:
    assert _code(found, detected=detected, off_node=True) is code
    if code is Code.ShortCircuitedByObject:
        assert _code(found, detected=detected, off_node=True, by_fleet=True) is Code.LoadBalancerRemedied


def _remedy_off_the_node(found: Service, detected: Detection = PROXIED) -> tuple[str, ...]:
    nodes = frozenset({ip_address("192.0.2.1")})
    seen = LoadBalancerObservation(found, detected, None, _BY_NAME["Hetzner"], nodes)
    return load_balancer_finding(seen, "v1.33.2").remedy


def test_one_that_terminates_tls_needs_the_detour_and_no_relay() -> None:
    key = "load-balancer.hetzner.cloud/http-certificates"
    found = service("blue", points=(point("192.0.2.9", hostname="lb.example.org"),), annotations={key: "own"})
    for paths in (None, (Code.ShortCircuitedAndFine,)):
        seen = LoadBalancerObservation(found, PLAIN, paths, _BY_NAME["Hetzner"])
        finding = load_balancer_finding(seen, "v1.36.0", "v1")
        assert finding.code == "TerminatesTLS"
        assert f"terminates TLS: annotation {key}" in finding.evidence
        # An address beside a hostname is short-circuited all the same.
        assert "published as 192.0.2.9 (ipMode not set, which means VIP), hostname lb.example.org" in (
            finding.evidence
        )
        told = " ".join(finding.remedy)
        assert "publish a hostname" in told
        assert "--policy" in told
        assert "uses-proxyprotocol" not in told
        assert "install nodeagent" not in told
    through = LoadBalancerObservation(found, PLAIN, (Code.ThroughLoadBalancer,), None)
    assert load_balancer_finding(through, "v1.36.0").code == "NotProxy"
    ignored = Detection(skipped("Ignored", "said so"))
    assert _code(found, detected=ignored) is Code.Ignored
    assert _code(replace(found, points=(point("192.0.2.9", mode="Proxy"),)), detected=PLAIN) is Code.NotProxy


def test_an_address_of_a_node_is_not_the_load_balancers() -> None:
    step, advice = _remedy_off_the_node(VIP)
    assert "names nodes (192.0.2.1), as k3s' ServiceLB writes it" in step
    assert "--disable servicelb" in advice
    assert "names nodes (192.0.2.1), as k3s' ServiceLB writes it" in _remedy_off_the_node(VIP, UNSTATED)[0]
    listed = Detection(served("Listed", "said so"), proxy=True)
    assert "nodeagent" in _remedy_off_the_node(VIP, listed)[-1]


def test_off_the_node_traefik_may_need_no_fix() -> None:
    points = (point("192.0.2.9", mode="VIP"),)
    assert "Traefik accepts" in _remedy_off_the_node(service("traefik", points=points))[0]
    assert "Traefik" not in " ".join(_remedy_off_the_node(service("blue", points=points)))


def test_off_the_node_nobody_knows_whether_a_hostname_answers_the_nodes() -> None:
    (step,) = _remedy_off_the_node(NAMED)
    assert step.endswith("docs/fixes.md")


def test_a_private_address_is_never_one_to_publish() -> None:
    both = service("blue", points=(point("203.0.113.50"), point("10.0.0.5"), point("fd00::5")))
    (record,) = [step for step in remedies(both, _BY_NAME["Hetzner"]) if "address record" in step]
    assert "203.0.113.50 for" in record
    assert "10.0.0.5" not in record
    inner = service("blue", points=(point("192.168.1.5"),))
    (record,) = [step for step in remedies(inner, _BY_NAME["Hetzner"]) if "address record" in step]
    assert "its address in the DNS that the nodes use" in record


def test_a_provider_that_sets_it_on_request_gets_the_request() -> None:
    steps = remedies(VIP, _BY_NAME["STACKIT"])
    assert "ask STACKIT's controller for ipMode: Proxy" in steps[0]
    assert steps[1] == "$ kubectl annotate service -n ingress blue lb.stackit.cloud/ip-mode-proxy=true"


_DETOUR = "goes out to the load balancer and comes back"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_every_providers_own_fix_has_its_annotation_and_what_else_it_changes(provider: Provider) -> None:
    """Which one it is, docs/fixes.md repeats (tests/release) of all but those that set ipMode themselves."""
    steps = remedies(VIP, provider)
    on_request, hostname = provider.ip_mode_on_request, provider.hostname
    wanted = [annotate(VIP, annotation) for annotation in (on_request, hostname) if annotation]
    assert [step for step in steps if step.startswith("$ ")] == wanted
    by_ip_mode = [step for step in steps if "ipMode: Proxy" in step]
    assert len(by_ip_mode) == bool(on_request) + bool(provider.ip_mode)
    assert all(_DETOUR in step for step in by_ip_mode)
    if hostname:
        after = steps[steps.index(annotate(VIP, hostname)) + 1]
        for effect in ("show the hostname", "external-dns", _DETOUR):
            assert effect in after
    assert steps[-1].startswith("on the nodes: install nodeagent")


def test_the_annotations_that_the_docs_do_not_repeat() -> None:
    assert {one.name: one.hostname for one in PROVIDERS if one.ip_mode and one.hostname} == {
        "Hetzner": 'load-balancer.hetzner.cloud/hostname: "lb.example.com"',
        "OpenStack": 'loadbalancer.openstack.org/hostname: "lb.example.com"',
        "Scaleway": 'service.beta.kubernetes.io/scw-loadbalancer-use-hostname: "true"',
        "cloudscale.ch": 'k8s.cloudscale.ch/loadbalancer-force-hostname: "lb.example.com"',
        "Outscale": 'service.beta.kubernetes.io/osc-load-balancer-ingress-address: "hostname"',
    }


def test_the_provider_is_known_by_an_annotation_before_the_nodes_cloud() -> None:
    key = "load-balancer.hetzner.cloud/uses-proxyprotocol"
    annotated = service("blue", annotations={key: "true"})
    node = replace(NODE, provider_id="digitalocean://1234")
    assert getattr(provider_of(annotated, node), "name", "") == "Hetzner"
    assert getattr(provider_of(VIP, node), "name", "") == "DigitalOcean"
    assert provider_of(VIP, NODE) is None
    assert provider_of(VIP, None) is None


def test_where_nothing_says_what_it_sends_the_configuration_is_printed() -> None:
    seen = LoadBalancerObservation(VIP, UNSTATED, None, None)
    finding = load_balancer_finding(seen, "v1.33.2")
    assert finding.code == Code.ProxyUnknown
    assert finding.remedy[1] == "$ nodeagent doctor"
    lines = [line.strip() for line in finding.remedy if line.startswith("  ")]
    assert lines == [
        "loadBalancers:",
        "services:",
        f"- namespace: {VIP.ref.namespace}",
        f"name: {VIP.ref.name}",
    ]


def test_of_annotations_that_contradict_themselves_there_is_one_truth() -> None:
    detected = Detection(refused("BadAnnotation", "it sends none: set this"), remarks=("mind that",))
    finding = load_balancer_finding(LoadBalancerObservation(VIP, detected, None, None), "v1.33.2")
    assert finding.code == Code.ProxyUnknown
    assert finding.seen == "it sends none: set this"
    assert "mind that" in finding.evidence
    assert finding.remedy == (f"correct the annotations of Service {VIP.ref.path}",)
