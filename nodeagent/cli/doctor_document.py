"""What the doctor found as data: a documented, versioned schema (docs/schema/)."""

import inspect
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from nodeagent.doctor.codes import Verdict
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.verdict import Summary

DOCTOR_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field or code goes or changes its meaning; new ones alone do not raise it."""


class DoctorFinding(Struct, frozen=True, rename="camel"):
    """One check of one thing.

    `code` settles `verdict`; docs/doctor.md explains each code. Lines of `remedy` that begin with `$ ` are
    commands.
    """

    check: str
    code: str
    verdict: Verdict
    subject: str
    seen: str
    evidence: list[str]
    remedy: list[str]


class DoctorDocument(Struct, frozen=True, rename="camel"):
    """The whole answer.

    `onNode` tells whether this machine was looked at as the node; `overall` is what the exit code says:
    healthy 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Doctor"]
    node: str
    on_node: bool
    overall: Literal["healthy", "affected", "cannot-tell"]
    sentence: str
    findings: list[DoctorFinding]


def document(node_name: str, on_node: bool, summary: Summary, findings: Sequence[Finding]) -> str:  # noqa: FBT001 - a field
    """Pure: the answer as indented JSON with a final newline."""
    found = DoctorDocument(
        schema_version=DOCTOR_SCHEMA_VERSION,
        kind="Doctor",
        node=node_name,
        on_node=on_node,
        overall=summary.overall,
        sentence=summary.sentence,
        findings=[
            DoctorFinding(
                check=finding.check,
                code=finding.code.value,
                verdict=finding.verdict,
                subject=finding.subject,
                seen=finding.seen,
                evidence=list(finding.evidence),
                remedy=list(finding.remedy),
            )
            for finding in findings
        ],
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def doctor_schema() -> dict[str, Any]:
    """Pure: the JSON Schema (draft 2020-12) of the document."""
    return schema_of(DoctorDocument, "nodeagent/cli/doctor_document.py")


def schema_of(document: type[Struct], file: str) -> dict[str, Any]:
    """Pure: the JSON Schema (draft 2020-12) of a document, the same under every version of Python.

    Args:
        document: The document's type. Docstrings become descriptions, without the indentation that Python
            keeps up to 3.12.
        file: Where the type is defined.
    """
    schema = msgspec.json.schema(document)
    for definition in schema["$defs"].values():
        definition["description"] = inspect.cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Made by `make schema` from {file}",
        **schema,
    }
