from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import Code
from nodeagent.doctor.load_balancer_findings import LoadBalancerObservation, load_balancer_finding
from nodeagent.model.decisions import refused, served, skipped
from nodeagent.model.objects import Service
from nodeagent.plan.identity.identify import Identity
from nodeagent.plan.identity.providers import PROVIDERS
from nodeagent.plan.identity.rows import Provider
from nodeagent.plan.identity.ways_out import annotate, ways_out
from tests.cases import cases_of
from tests.plan.made_up import point, service

VIP = service("blue", points=(point("192.0.2.1", mode="VIP"),))
PROXY = service("blue", points=(point("192.0.2.1", mode="Proxy"),))
NAMED = service("blue", points=(point(hostname="lb.example.com"),))
_BY_NAME = {provider.name: provider for provider in PROVIDERS}


PROXIED = Identity(served("Annotated", "said so"), proxy=True)


def _code(
    found: Service, *paths: Code, detected: Identity = PROXIED, off_node: bool = False, by_fleet: bool = False
) -> Code:
    seen = LoadBalancerObservation(found, detected, None if off_node else paths, by_fleet=by_fleet)
    return Code[load_balancer_finding(seen, "v1.33.2").code]


_PUBLISHING = {"VIP": VIP, "Proxy": PROXY, "hostname": NAMED, "nothing": service("blue", points=())}


@pytest.mark.parametrize(
    ("publishes", "paths", "code"), cases_of(__file__, "verdicts.yaml")["load_balancers"]
)
def test_what_is_said_of_a_load_balancer(publishes: str, paths: list[str], code: str) -> None:
    assert _code(_PUBLISHING[publishes], *(Code[each] for each in paths)) is Code[code]


PLAIN = Identity(skipped("NotProxy", "said so"))


def test_one_that_sends_no_line_is_troubled_only_if_its_controller_demands_it() -> None:
    assert _code(VIP, Code.ShortCircuitedAndFine, detected=PLAIN) is Code.NotProxy
    assert _code(VIP, Code.Undetected, detected=PLAIN) is Code.Troubled
    ignored = Identity(skipped("Ignored", "said so"), proxy=True)
    assert _code(VIP, Code.ShortCircuitedAndCut, detected=ignored) is Code.Ignored


def _remedy_off_the_node(found: Service, detected: Identity = PROXIED) -> tuple[str, ...]:
    nodes = frozenset({ip_address("192.0.2.1")})
    seen = LoadBalancerObservation(found, replace(detected, provider=_BY_NAME["Hetzner"]), None, nodes)
    return load_balancer_finding(seen, "v1.33.2").remedy


def test_one_that_terminates_tls_needs_the_detour_and_no_relay() -> None:
    found = service("blue", points=(point("192.0.2.9", hostname="lb.example.org"),))
    tls = skipped("TerminatesTLS", "said so")
    identity = Identity(tls, provider=_BY_NAME["Hetzner"], terminated=(443,))
    for paths in (None, (Code.ShortCircuitedAndFine,)):
        finding = load_balancer_finding(LoadBalancerObservation(found, identity, paths), "v1.36.0", "v1")
        assert finding.code == "TerminatesTLS"
        # An address beside a hostname is short-circuited all the same.
        assert "published as 192.0.2.9 (ipMode not set, which means VIP), hostname lb.example.org" in (
            finding.evidence
        )
    ways = ways_out(found, identity, "v1")
    assert [way.way for way in ways] == ["hostname", "policy"], "PROXY is off, and a relay can't replace TLS"
    through = LoadBalancerObservation(found, identity, (Code.ThroughLoadBalancer,))
    assert load_balancer_finding(through, "v1.36.0").code == "NotProxy"
    ignored = Identity(skipped("Ignored", "said so"), terminated=(443,))
    assert _code(found, detected=ignored) is Code.Ignored
    behind = replace(found, points=(point("192.0.2.9", mode="Proxy"),))
    assert _code(behind, detected=identity) is Code.NotProxy
    assert _code(behind, detected=identity, off_node=True) is Code.IPModeProxy


def test_off_the_node_traefik_may_need_no_fix() -> None:
    points = (point("192.0.2.9", mode="VIP"),)
    assert "Traefik accepts" in _remedy_off_the_node(service("traefik", points=points))[0]
    assert "Traefik" not in " ".join(_remedy_off_the_node(service("blue", points=points)))


def test_off_the_node_nobody_knows_whether_a_hostname_answers_the_nodes() -> None:
    (step,) = _remedy_off_the_node(NAMED)
    assert step.endswith("docs/fixes.md")


def steps_of(found: Service, provider: Provider, policy_api: str = "") -> list[str]:
    ways = ways_out(found, replace(PROXIED, provider=provider), policy_api)
    return [step for way in ways for step in way.steps]


def test_a_private_address_is_never_one_to_publish() -> None:
    both = service("blue", points=(point("203.0.113.50"), point("10.0.0.5"), point("fd00::5")))
    (record,) = [step for step in steps_of(both, _BY_NAME["Hetzner"]) if "address record" in step]
    assert "203.0.113.50 for" in record
    assert "10.0.0.5" not in record
    inner = service("blue", points=(point("192.168.1.5"),))
    (record,) = [step for step in steps_of(inner, _BY_NAME["Hetzner"]) if "address record" in step]
    assert "its address in the DNS that the nodes use" in record


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_every_providers_own_fix_has_its_command_and_what_else_it_changes(provider: Provider) -> None:
    """Which one it is, docs/fixes.md repeats (tests/release) of all but those that set ipMode themselves."""
    ways = {way.way: way.steps for way in ways_out(VIP, replace(PROXIED, provider=provider))}
    assert list(ways)[-1] == "nodeagent"
    assert ("announced" in ways) == provider.announces
    assert ("ip-mode" in ways) == bool(provider.ip_mode)
    assert ("ip-mode-on-request" in ways) == bool(provider.ip_mode_on_request)
    assert ("hostname" in ways) == bool(provider.hostname)
    detour = "goes out to the load balancer and comes back"
    if provider.ip_mode:
        assert detour in ways["ip-mode"][0]
        assert ways["ip-mode"][-1].startswith("$ kubectl -n ingress get service blue -o jsonpath=")
    if provider.ip_mode_on_request:
        assert detour in ways["ip-mode-on-request"][0]
        assert ways["ip-mode-on-request"][1] == annotate(VIP, provider.ip_mode_on_request)
    if provider.hostname:
        assert annotate(VIP, provider.hostname) in ways["hostname"]
        for effect in ("show the hostname", "external-dns", detour):
            assert effect in ways["hostname"][-1]


def test_the_annotations_that_the_docs_do_not_repeat() -> None:
    assert {one.name: one.hostname for one in PROVIDERS if one.ip_mode and one.hostname} == {
        "Hetzner": 'load-balancer.hetzner.cloud/hostname: "lb.example.com"',
        "OpenStack": 'loadbalancer.openstack.org/hostname: "lb.example.com"',
        "Scaleway": 'service.beta.kubernetes.io/scw-loadbalancer-use-hostname: "true"',
        "cloudscale.ch": 'k8s.cloudscale.ch/loadbalancer-force-hostname: "lb.example.com"',
        "Outscale": 'service.beta.kubernetes.io/osc-load-balancer-ingress-address: "hostname"',
    }


def test_of_annotations_that_contradict_themselves_there_is_one_truth() -> None:
    detected = Identity(refused("BadAnnotation", "it sends none: set this"), remarks=("mind that",))
    finding = load_balancer_finding(LoadBalancerObservation(VIP, detected, None), "v1.33.2")
    assert finding.code == Code.ProxyUnknown
    assert finding.seen == "it sends none: set this"
    assert "mind that" in finding.evidence
    assert finding.remedy == (f"correct the annotations of Service {VIP.ref.path}",)
