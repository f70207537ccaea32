"""`-o json` is what docs/schema says it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from nodeagent.cli.document import SCHEMA_VERSION, Document
from nodeagent.cli.schemas import schema_of
from tests.cli.command_line import ADDRESS, HOST, HOSTS_FILE, NODE, PORT, ingress, service

if TYPE_CHECKING:
    from tests.cli.command_line import CommandLine

_FILE = Path(__file__).parents[2] / "docs" / "schema" / f"report-v{SCHEMA_VERSION}.json"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    published = json.loads(_FILE.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(published)


def test_the_published_schema_is_the_codes_own() -> None:
    assert json.loads(_FILE.read_text(encoding="utf-8")) == schema_of(Document), "run `make schema`"


@pytest.mark.parametrize("backend", ["none", "auto"])
@pytest.mark.parametrize("command", ["plan", "status"])
def test_every_answer_is_valid(
    command_line: CommandLine, validator: Draft202012Validator, command: str, backend: str
) -> None:
    command_line.configure(dnat={"backend": backend})
    command_line.write(
        other=service("other"),
        hostile=ingress("a\nb", "\x1b[31m", "*.example.test", "localhost", name="hostile"),
        empty=ingress(name="empty"),
    )
    (command_line.manifests / "broken.yaml").write_text("a: [b", encoding="ascii")
    reply = command_line(command, "-o", "json")
    validator.validate(reply.document)
    assert reply.document["schemaVersion"] == SCHEMA_VERSION
    assert reply.document["kind"] == command.capitalize()
    assert reply.document["node"] == NODE


def test_an_error_is_valid_too(command_line: CommandLine, validator: Draft202012Validator) -> None:
    command_line.hosts_file.unlink()
    command_line.hosts_file.mkdir()
    reply = command_line("plan", "-o", "json")
    assert reply.exit_code == 1
    validator.validate(reply.document)
    assert set(reply.document["errors"]) == {"hosts"}
    assert reply.document["inSync"] is False


def test_the_schema_is_strict_enough_to_fail(
    command_line: CommandLine, validator: Draft202012Validator
) -> None:
    document = command_line("plan", "-o", "json").document
    for broken in (document | {"schemaVersion": "0"}, _without(document, "changes"), document | {"names": 1}):
        assert not validator.is_valid(broken)


def test_a_plan_shows_all_that_would_change(command_line: CommandLine) -> None:
    document = command_line("plan", "-o", "json").document
    (load_balancer,) = document["loadBalancers"]
    assert load_balancer["verdict"] == "served"
    assert load_balancer["addresses"] == [ADDRESS]
    assert load_balancer["ports"] == [PORT]
    assert load_balancer["listeners"] is None
    (relay,) = load_balancer["relayAddresses"]
    (name,) = document["names"]
    assert (name["name"], name["verdict"], name["written"]) == (HOST, "served", False)
    changes = document["changes"]
    assert changes["addresses"]["add"] == [relay]
    assert changes["relay"]["add"][0]["bind"] == f"{relay}:{PORT}"
    assert changes["relay"]["add"][0]["server"] == f"10.96.0.10:{PORT}"
    assert changes["hosts"]["add"] == [HOST]
    assert f"+{relay}\t{HOST}\n" in changes["hosts"]["diff"]
    assert changes["dnat"]["add"] == {
        "redirects": [],
        "pods": [],
        "guarded": ["169.254.66.0/24"],
        "admitted": [],
    }


def test_two_plans_are_the_same_to_the_byte(command_line: CommandLine) -> None:
    assert command_line("plan", "-o", "json").stdout == command_line("plan", "-o", "json").stdout
    assert command_line.hosts_file.read_text(encoding="ascii") == HOSTS_FILE
    assert not command_line.run_directory.exists()


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}
