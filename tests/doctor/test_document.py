"""`-o json` is what docs/schema says it is, and colors are for terminals."""

import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodeagent.cli import invocation
from nodeagent.cli.doctor import GROUPS, DoctorDocument
from nodeagent.cli.main import run
from nodeagent.doctor.findings import Code
from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import Facts
from nodeagent.sources.node import read_facts
from release.schemas import schema_of
from tests.cases import cases_of
from tests.cli.command_line import ADDRESS, PORT, CommandLine, service

_SCHEMA = schema_of(DoctorDocument)


def test_a_code_is_free_text_so_that_a_new_one_breaks_no_reader() -> None:
    assert _SCHEMA["$defs"]["Finding"]["properties"]["code"] == {"type": "string"}


def test_every_check_is_shown_somewhere() -> None:
    shown = [check for checks in GROUPS.values() for check in checks]
    assert sorted(shown) == sorted({code.check for code in Code})


def test_off_a_node_the_objects_speak(command_line: CommandLine) -> None:
    command_line.write(other=service("other", externalIPs=[]))
    reply = command_line("doctor", "-o", "json")
    assert reply.exit_code == 2
    document = reply.document
    Draft202012Validator(_SCHEMA).validate(document)
    assert document["onNode"] is False
    assert document["overall"] == "affected"
    assert "is affected, judging by its objects alone: ingress/controller" in document["sentence"]
    found = {(finding["subject"], finding["code"]) for finding in document["findings"]}
    assert found == {
        ("ingress/controller", "ShortCircuitedByObject"),
        ("ingress/other", "ProxyUnknown"),
        ("connections", "NotThisNode"),
    }
    (known,) = (finding for finding in document["findings"] if finding["subject"] == "ingress/controller")
    assert any(ADDRESS in line for line in known["evidence"])
    assert known["remedy"]


def test_off_a_node_the_ports_of_this_machine_are_no_reason_to_leave_nodeagent_out(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {Endpoint(ip_address(anywhere), PORT): 1000 for anywhere in ("0.0.0.0", "::")}

    def facts(*given: Any) -> Facts:  # noqa: ANN401 - read_facts' own
        return replace(read_facts(*given), port_holders=held)

    monkeypatch.setattr(invocation, "read_facts", facts)
    found = {one["subject"]: one for one in command_line("doctor", "-o", "json").document["findings"]}
    assert not any("can't serve it" in line for line in found["ingress/controller"]["evidence"])
    assert any("install nodeagent" in step for step in found["ingress/controller"]["remedy"])


def test_an_object_that_hides_no_others_is_skipped_and_named(command_line: CommandLine) -> None:
    command_line.write(
        odd={**service("odd"), "kind": "Ingress", "apiVersion": "networking.k8s.io/v1", "spec": 7}
    )
    found = {one["code"]: one for one in command_line("doctor", "-o", "json").document["findings"]}
    assert "ObjectsUnreadable" not in found
    assert "Ingress ingress/odd" in found["ObjectsSkipped"]["evidence"][0]


@pytest.mark.parametrize(
    ("terminal", "variables", "coloured"), cases_of(__file__, "verdicts.yaml")["coloured"]
)
def test_colours_are_for_terminals_and_not_for_those_who_ask_for_none(
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    variables: dict[str, str],
    coloured: bool,
) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with ThreadPoolExecutor(1) as reader:
        said = reader.submit(_everything, ours)
        with os.fdopen(theirs, "w") as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            assert run(["doctor", *command_line.options]) == 2
        assert b"ShortCircuitedByObject" in said.result()
        assert (b"\x1b[" in said.result()) is coloured


def _everything(descriptor: int) -> bytes:
    said = b""
    # A terminal whose last writer has ended ends in EIO, a pipe in nothing to read.
    with suppress(OSError):
        while piece := os.read(descriptor, 65536):
            said += piece
    os.close(descriptor)
    return said
