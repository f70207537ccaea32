from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model import objects as model
from nodeagent.model.objects import GATEWAY_API, GatewayListener, LabelRule, ObjectRef, ParentRef
from nodeagent.sources.manifests import read_manifests
from tests.cases import cases_of

CASES: dict[str, Any] = cases_of(__file__, "cases.yaml")
GATEWAY, ROUTE = CASES["gateway"], CASES["route"]


def read(folder: Path, *documents: str) -> model.Snapshot:
    (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    return read_manifests(folder, "node1")


def test_a_gateway(tmp_path: Path) -> None:
    selector = (
        LabelRule("team", "In", ("web",)),
        LabelRule("stage", "NotIn", ("test",)),
        LabelRule("x", "Exists"),
    )
    assert read(tmp_path, GATEWAY).gateways == (
        model.Gateway(
            ObjectRef("Gateway", "infra", "public"),
            datetime(2024, 3, 1, 10, tzinfo=UTC),
            (
                GatewayListener("http", 80, "HTTP"),
                GatewayListener(
                    "https",
                    443,
                    "HTTPS",
                    "*.example.com",
                    ((GATEWAY_API, "HTTPRoute"), ("example.com", "Special")),
                    model.AllowedNamespaces("Selector", selector),
                ),
            ),
            (
                model.LoadBalancerPoint(ip_address("192.0.2.1")),
                model.LoadBalancerPoint(ip_address("2001:db8::1")),
                model.LoadBalancerPoint(None, "lb.example.net"),
            ),
            model.AllowedNamespaces("All"),
            annotations={"nodeagent.io/exclude": "false"},
        ),
    )


def test_an_invalid_address_is_reported_and_the_others_count(tmp_path: Path) -> None:
    (found,) = read(tmp_path, GATEWAY.replace("value: 192.0.2.1", "value: nonsense")).gateways
    assert [each.partition(" is ")[0] for each in found.problems] == ["status.addresses[0]: 'nonsense'"]
    assert len(found.points) == 2


@pytest.mark.parametrize(("old", "new", "reason"), CASES["odd_gateways"])
def test_an_invalid_gateway_is_reported_and_hides_no_other(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    found = read(tmp_path, GATEWAY.replace(old, new), GATEWAY.replace("name: public", "name: other"))
    assert [gateway.ref.name for gateway in found.gateways] == ["other"]
    (told,) = found.unreadable
    assert told.where.endswith("all.yaml:1: Gateway infra/public")
    assert told.reason == reason


PARENTS = (
    ParentRef(GATEWAY_API, "Gateway", "infra", "public", "https"),
    ParentRef(GATEWAY_API, "Gateway", "web", "own", None, 80),
    ParentRef(GATEWAY_API, "ListenerSet", "web", "more"),
    ParentRef("", "Service", "web", "mesh"),
)


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, each) for kind, versions in CASES["routes"].items() for each in versions]
)
def test_a_route(tmp_path: Path, kind: str, version: str) -> None:
    assert read(tmp_path, ROUTE.format(kind=kind, version=version)).routes == (
        model.Route(
            ObjectRef(kind, "web", "site"), hostnames=("a.example.com", "*.b.example.com"), parents=PARENTS
        ),
    )


def _status(*said: str) -> str:
    """What controllers say of the first parent: a status, with the generation they saw."""
    lines = "".join(
        f"""
  - controllerName: example.com/{number}
    parentRef: {{name: public, namespace: infra, sectionName: https}}
    conditions: [{{type: Accepted, status: "{word}", observedGeneration: {generation}}}]"""
        for number, (word, generation) in enumerate(each.split("@") for each in said)
    )
    return f"status:\n  parents:{lines}"


@pytest.mark.parametrize(("said", "declined"), CASES["accepted"])
def test_a_parent_declines_a_route_if_no_controller_accepts_it_as_it_is_now(
    tmp_path: Path, said: list[str], *, declined: bool
) -> None:
    """What was said of an older generation is stale; a controller that never counts them is believed."""
    text = ROUTE.format(kind="HTTPRoute", version="v1") + (_status(*said) if said else "")
    (found,) = read(tmp_path, text).routes
    assert found.declined == (PARENTS[:1] if declined else ())


def test_a_listener_set(tmp_path: Path) -> None:
    """Its Gateway is looked for in its own namespace unless it says another."""
    assert read(tmp_path, CASES["listener_set"]).listener_sets == (
        model.ListenerSet(
            ObjectRef("ListenerSet", "team", "more"),
            ParentRef(GATEWAY_API, "Gateway", "team", "public"),
            (GatewayListener("a", 443, "HTTPS", "a.example.com"),),
        ),
    )
