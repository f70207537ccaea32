"""Traefik's and Istio's own objects: which hosts they ask for, and what is none in them."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.objects import ControllerRoute
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.kinds import hosts_in_rule
from tests.cases import cases_of


def read(folder: Path, kind: str, api_version: str, spec: str) -> tuple[ControllerRoute, ...]:
    text = f"kind: {kind}\napiVersion: {api_version}\nmetadata: {{name: site, namespace: web}}\nspec:\n{spec}"
    (folder / "all.yaml").write_text(text, encoding="utf-8")
    snapshot = read_manifests(folder, "node1")
    assert snapshot.unreadable == ()
    return snapshot.controller_routes


CASES = cases_of(__file__, "cases.yaml")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_the_hosts_of_an_istio_gateway_may_name_a_namespace(tmp_path: Path, version: str) -> None:
    """It chooses whose VirtualServices are bound; it is no part of the name."""
    (found,) = read(tmp_path, "Gateway", f"networking.istio.io/{version}", CASES["istio"])
    assert found.hosts == ("a.example.com", "*.b.example.com")
    assert found.controller == "istio.io/ingress-controller"


@pytest.mark.parametrize(
    ("gateways", "asks"),
    [("[istio/public]", True), ("[mesh, public]", True), ("[mesh]", False), ("[]", False), ("", False)],
)
def test_a_virtual_service_asks_for_names_only_at_a_gateway(
    tmp_path: Path, gateways: str, *, asks: bool
) -> None:
    """Without one it is for the sidecars alone."""
    spec = f"  gateways: {gateways}\n  hosts: [a.example.com]\n"
    found = read(tmp_path, "VirtualService", "networking.istio.io/v1", spec)
    assert [route.hosts for route in found] == ([("a.example.com",)] if asks else [])


@pytest.mark.parametrize("spec", ["  {}", "  routes: {}", "  routes: [1, {match: 2}, {match: }]", "  [x]"])
def test_values_elsewhere_or_of_another_type_claim_nothing(tmp_path: Path, spec: str) -> None:
    (found,) = read(tmp_path, "IngressRoute", "traefik.io/v1alpha1", spec)
    assert found.hosts == ()


@pytest.mark.parametrize(("rule", "hosts"), CASES["rules"])
def test_hosts_of_a_rule(rule: str, hosts: list[str]) -> None:
    assert list(hosts_in_rule(rule)) == hosts


@given(st.text(alphabet='Host(`a.b`)"!&| ,\\', max_size=60))
@settings(deadline=None)
def test_no_text_is_too_odd(rule: str) -> None:
    for host in hosts_in_rule(rule):
        assert f"`{host}`" in rule or f'"{host}"' in rule


@pytest.mark.parametrize(
    "rule",
    [
        'Host("' + '\\"' * 500_000,
        "Host(" + "`" * 1_000_001,
        "(" * 500_000 + ")" * 500_000,
        'Host("' + "\\" * 1_000_001,
        "Host(" + '"a" ' * 250_000,
    ],
    ids=["quotes", "backticks", "parentheses", "backslashes", "texts"],
)
def test_a_rule_of_a_megabyte_costs_seconds_and_not_hours(rule: str) -> None:
    """Anyone can write one: the agent, which reads it, has one interpreter for everything."""
    started = time.process_time()
    hosts_in_rule(rule)
    assert time.process_time() - started < 10
