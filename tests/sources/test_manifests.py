"""Manifests on disk: what is read, and what is said of what can't be."""

import json
import os
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nodeagent.errors import SourceError
from nodeagent.model.objects import Service, Snapshot
from nodeagent.sources.manifests import read_manifests
from tests.apiserver.objects import Port, service
from tests.cases import cases_of

CASES: dict[str, Any] = cases_of(__file__, "cases.yaml")


def load_balancer(name: str = "controller", **spec: object) -> dict[str, Any]:
    given: dict[str, Any] = {"cluster_ips": ["10.96.0.7"], "ports": [Port("https", 443, 443)]}
    made = service(name, "ingress", kind="LoadBalancer", addresses=["192.0.2.1"], **given)
    return made | {"spec": made["spec"] | spec}


def ingress(**spec: object) -> dict[str, Any]:
    metadata = {"name": "site", "namespace": "web"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def read(directory: Path, text: str | bytes, name: str = "manifest.yaml") -> Snapshot:
    (directory / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_manifests(directory, "node1")


def names(snapshot: Snapshot) -> list[str]:
    return [service.ref.name for service in snapshot.services]


def complaints(snapshot: Snapshot) -> list[tuple[str, str]]:
    """File and line (without the directory), and reason, of all that could not be read."""
    return [(entry.where.rpartition("/")[2], entry.reason) for entry in snapshot.unreadable]


def only_service(snapshot: Snapshot) -> Service:
    assert not snapshot.unreadable
    (service,) = snapshot.services
    return service


def test_every_document_of_a_file_is_read(tmp_path: Path) -> None:
    text = "---\n# a comment\n---\n" + "\n---  # next\n".join(
        json.dumps(load_balancer(name)) for name in ("one", "two", "three")
    )
    snapshot = read(tmp_path, text + "\n---\n\n---\n# the end\n---\n")
    assert names(snapshot) == ["one", "two", "three"]
    assert not snapshot.unreadable


_BLOCK: str = CASES["block"]
_ITEMS = [load_balancer("one"), load_balancer("two")]
_WITHOUT_KIND = [{key: value for key, value in item.items() if key != "kind"} for item in _ITEMS]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("block.yaml", _BLOCK),
        ("windows.yaml", _BLOCK.replace("\n", "\r\n")),
        ("windows-too.yaml", f"\ufeff{_BLOCK}"),
        ("tabs.json", json.dumps({"kind": "List", "items": _ITEMS}, indent="\t")),
        ("api.yaml", json.dumps({"kind": "ServiceList", "items": _ITEMS})),
        ("api-too.yaml", json.dumps({"kind": "ServiceList", "items": _WITHOUT_KIND})),
    ],
)
def test_each_form_of_a_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    """As kubectl prints it, as editors on Windows save it, and as the API gives a list."""
    assert names(read(tmp_path, text, name)) == ["one", "two"]


@pytest.mark.parametrize("items", [[], None])
def test_an_empty_list_is_no_cluster(tmp_path: Path, items: object) -> None:
    """Go writes an empty list as null. What had no rights to read anything exports one."""
    with pytest.raises(SourceError, match="0 Services, 0 Nodes read; nothing was changed"):
        read(tmp_path, json.dumps({"kind": "List", "items": items}))


def test_a_broken_item_of_a_list_hides_no_other(tmp_path: Path) -> None:
    broken = load_balancer("broken", ports=7)
    items = [load_balancer("one"), broken, 5, load_balancer("two")]
    snapshot = read(tmp_path, json.dumps({"kind": "List", "items": items}))
    assert names(snapshot) == ["one", "two"]
    assert [where for where, _ in complaints(snapshot)] == ["broken", "manifest.yaml:1: items[2]"]
    assert "manifest.yaml:1: items[1]: Service ingress/broken" in snapshot.unreadable[0].where


@pytest.mark.parametrize(
    ("broken", "line"),
    [("kind: Service\nmetadata: {name: ]}", 6), ("kind: Service\nmetadata:\n\tname: x", 7)],
)
def test_a_broken_document_hides_no_other_and_is_named_by_its_line(
    tmp_path: Path, broken: str, line: int
) -> None:
    one, two = (json.dumps(item) for item in _ITEMS)
    snapshot = read(tmp_path, f"# first\n---\n{one}\n---\n{broken}\n---\n{two}\n")
    assert names(snapshot) == ["one", "two"]
    ((where, reason),) = complaints(snapshot)
    assert where == f"manifest.yaml:{line}"
    assert reason.startswith("not YAML: ")


@pytest.mark.parametrize(
    "text", ["a: b\n", "just words\n", "- 1\n- 2\n", "5\n", "kind: 5\n", "kind:\n", "[]", "[1]"]
)
def test_what_is_no_api_object_is_named(tmp_path: Path, text: str) -> None:
    why = "not an API object: it has no kind"
    assert complaints(read(tmp_path, text)) == [("manifest.yaml:1", why)]


@pytest.mark.parametrize("text", ["{", '{"kind": "Service",}', '{"kind": "Service"} x', '{"kind": nonsense}'])
def test_a_file_that_begins_like_json_and_is_none_is_named(tmp_path: Path, text: str) -> None:
    ((where, reason),) = complaints(read(tmp_path, text, "bad.json"))
    assert where.startswith("bad.json")
    assert reason.startswith("not JSON: ")
    assert "\n" not in reason
    assert "malformed" not in reason
    assert "Input data" not in reason


def test_an_object_given_twice_is_named_and_the_first_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps(load_balancer(clusterIPs=["10.96.0.1"])), encoding="utf-8")
    snapshot = read(tmp_path, json.dumps(load_balancer(clusterIPs=["10.96.0.2"])), "b.yaml")
    (service,) = snapshot.services
    assert service.cluster_ips == (ip_address("10.96.0.1"),)
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("b.yaml:1: Service ingress/controller")
    assert entry.reason.startswith("given twice")


@pytest.mark.parametrize(("kind", "version", "counts"), CASES["kinds"])
def test_a_kind_is_told_from_others_of_its_name_by_its_group(
    tmp_path: Path, kind: str, version: str | None, counts: list[int]
) -> None:
    """A custom kind needs it: there are many Gateways."""
    found = read(tmp_path, json.dumps({**ingress(), "kind": kind, "apiVersion": version}))
    assert [len(found.ingresses), len(found.gateways), len(found.controller_routes)] == counts
    assert found.unreadable == ()


@pytest.mark.parametrize(("spec", "at"), CASES["wrong_types"])
def test_a_field_of_the_wrong_type_is_named(tmp_path: Path, spec: dict[str, object], at: str) -> None:
    found = load_balancer()
    found["spec"] |= spec
    snapshot = read(tmp_path, json.dumps(found))
    assert not snapshot.services
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("manifest.yaml:1: Service ingress/controller")
    assert entry.reason.startswith(f"{at}: must be ")


def test_a_pipe_is_read_as_a_file(tmp_path: Path) -> None:
    """`--manifests <(kubectl get ... -o yaml)`: one file, whatever its suffix."""
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=(json.dumps(load_balancer()),))
    writer.start()
    assert names(read_manifests(tmp_path / "pipe", "node1")) == ["controller"]
    writer.join()


def test_a_device_is_read_as_a_file() -> None:
    with pytest.raises(SourceError, match=r"^/dev/null: 0 Services, 0 Nodes read"):
        read_manifests(Path("/dev/null"), "node1")


def test_only_manifests_of_the_directory_itself_are_read(tmp_path: Path) -> None:
    """Neither other suffixes nor folders below, as kubectl does."""
    (tmp_path / "below").mkdir()
    for place in ("a.yaml", "b.yml", "c.json", "README.md", "d.yaml.bak", "below/e.yaml"):
        (tmp_path / place).write_text(json.dumps(load_balancer(place[0])), encoding="utf-8")
    assert names(read_manifests(tmp_path, "node1")) == ["a", "b", "c"]
