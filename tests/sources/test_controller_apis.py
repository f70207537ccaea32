"""Traefik's and Istio's own objects: which hosts they ask for, and what is none in them."""

from pathlib import Path

import pytest

from nodeagent.model.objects import ControllerRoute
from nodeagent.sources.manifests import read_manifests


def read(folder: Path, kind: str, api_version: str, spec: str) -> tuple[ControllerRoute, ...]:
    text = f"kind: {kind}\napiVersion: {api_version}\nmetadata: {{name: site, namespace: web}}\nspec:\n{spec}"
    (folder / "all.yaml").write_text(text, encoding="utf-8")
    snapshot = read_manifests(folder, "node1")
    assert snapshot.unreadable == ()
    return snapshot.controller_routes


ISTIO = """\
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: [web/a.example.com, "./*.b.example.com"]}
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*", "*/*", a.example.com]}
"""


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_the_hosts_of_an_istio_gateway_may_name_a_namespace(tmp_path: Path, version: str) -> None:
    """It chooses whose VirtualServices are bound; it is no part of the name."""
    (found,) = read(tmp_path, "Gateway", f"networking.istio.io/{version}", ISTIO)
    assert found.hosts == ("a.example.com", "*.b.example.com")
    assert found.controller == "istio.io/ingress-controller"


@pytest.mark.parametrize(
    ("gateways", "asks"),
    [
        ("[istio/public]", True),
        ("[mesh, public]", True),
        ("[mesh]", False),
        ("[]", False),
        ("", False),
    ],
)
def test_a_virtual_service_asks_for_names_only_at_a_gateway(
    tmp_path: Path, gateways: str, *, asks: bool
) -> None:
    """Without one it is for the sidecars alone."""
    found = read(
        tmp_path,
        "VirtualService",
        "networking.istio.io/v1",
        f"  gateways: {gateways}\n  hosts: [a.example.com]\n",
    )
    assert [route.hosts for route in found] == ([("a.example.com",)] if asks else [])


@pytest.mark.parametrize("spec", ["  {}", "  routes: {}", "  routes: [1, {match: 2}, {match: }]", "  [x]"])
def test_values_elsewhere_or_of_another_type_claim_nothing(tmp_path: Path, spec: str) -> None:
    """The object is readable; there is no host in it."""
    (found,) = read(tmp_path, "IngressRoute", "traefik.io/v1alpha1", spec)
    assert found.hosts == ()
