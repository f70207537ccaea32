"""What is read of manifests: documents.yaml has the cases."""

import json
from collections.abc import Callable, Mapping
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.objects import GATEWAY_API, ObjectRef, ParentRef, Route
from tests.cases import cases_of
from tests.sources.test_manifests import CASES, ingress, load_balancer, only_service, read

_DOCUMENTS: dict[str, dict[str, Any]] = cases_of(__file__, "documents.yaml")


def node(name: str = "node1") -> dict[str, Any]:
    addresses = [
        {"type": "InternalIP", "address": "198.51.100.1"},
        {"type": "InternalIP", "address": "2001:db8:1::1"},
        {"type": "ExternalIP", "address": "203.0.113.1"},
        {"type": "Hostname", "address": name},
        {"type": "InternalDNS", "address": f"{name}.internal"},
    ]
    return {"metadata": {"name": name}, "spec": {}, "status": {"addresses": addresses}}


_USUAL: dict[str, Callable[[], dict[str, Any]]] = {"Service": load_balancer, "Ingress": ingress, "Node": node}


def _made(given: dict[str, Any]) -> dict[str, Any]:
    """The usual object of the kind, but for what is given."""
    if given["kind"] not in _USUAL:
        return given
    usual = _USUAL[given["kind"]]()
    merged = {part: usual.get(part, {}) | given.get(part, {}) for part in ("metadata", "spec")}
    return {**usual, **given, **merged}


def _shown(found: Any, wanted: Any) -> Any:  # noqa: ANN401 - in the shape of what is wanted
    if isinstance(wanted, dict) and not isinstance(found, Mapping):
        return {field: _shown(attrgetter(field)(found), like) for field, like in wanted.items()}
    if isinstance(wanted, list):
        found = sorted(found) if isinstance(found, frozenset) else found
        return [_shown(each, like) for each, like in zip_longest(found, wanted)]
    if found is None or isinstance(found, int | Mapping):
        return found
    begins = isinstance(wanted, str) and wanted.endswith("...")
    return wanted if begins and str(found).startswith(wanted.removesuffix("...")) else str(found)


@pytest.mark.parametrize("case", _DOCUMENTS)
def test_what_is_read(tmp_path: Path, case: str) -> None:
    right = _DOCUMENTS[case]
    objects = {"kind": "List", "items": [_made(each) for each in right.get("given", ())]}
    text = CASES[right["of"]] if "of" in right else right.get("file") or json.dumps(objects)
    snapshot = read(tmp_path, text)
    assert _shown(snapshot, right["found"]) == right["found"]
    unreadable = [(each.where.rpartition(": ")[2], each.reason) for each in snapshot.unreadable]
    assert _shown(unreadable, right.get("unreadable", [])) == right.get("unreadable", [])


@pytest.mark.parametrize(("namespace", "labels", "expected"), CASES["gateways"])
def test_whose_gateway_a_service_was_made_for(
    tmp_path: Path, namespace: str, labels: dict[str, str], expected: list[str | None]
) -> None:
    """As each implementation labels it; no namespace can say so of another one's, but Envoy Gateway's own."""
    made = _made({"kind": "Service", "metadata": {"labels": labels, "namespace": namespace}})
    service = only_service(read(tmp_path, json.dumps(made)))
    assert [service.gateway, service.gateway_namespace] == expected


GATEWAY, ROUTE = CASES["gateway"], CASES["route"]


def test_an_invalid_address_is_reported_and_the_others_count(tmp_path: Path) -> None:
    (found,) = read(tmp_path, GATEWAY.replace("value: 192.0.2.1", "value: nonsense")).gateways
    assert [each.partition(" is ")[0] for each in found.problems] == ["status.addresses[0]: 'nonsense'"]
    assert len(found.points) == 2


@pytest.mark.parametrize(("old", "new", "reason"), CASES["odd_gateways"])
def test_an_invalid_gateway_is_reported_and_hides_no_other(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    other = GATEWAY.replace("name: public", "name: other")
    found = read(tmp_path, f"{GATEWAY.replace(old, new)}\n---\n{other}")
    assert [gateway.ref.name for gateway in found.gateways] == ["other"]
    (told,) = found.unreadable
    assert told.where.endswith("manifest.yaml:1: Gateway infra/public")
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
        Route(
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
