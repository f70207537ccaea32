"""The JSON Schemas (docs/schema/) of all that commands and the agent write: `make schema`."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.agent.reporting.status_file import AGENT_STATUS_SCHEMA_VERSION, AgentStatus
from nodeagent.cli.doctor import DOCTOR_SCHEMA_VERSION, DoctorDocument
from nodeagent.cli.document import SCHEMA_VERSION, Document
from nodeagent.cli.fleet import FLEET_SCHEMA_VERSION, FleetDocument
from nodeagent.config.schema import CONFIG_SCHEMA_VERSION, config_schema


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema (JSON Schema, draft 2020-12) by the name of its file. Pure."""
    return {
        f"report-v{SCHEMA_VERSION}": schema_of(Document),
        f"doctor-v{DOCTOR_SCHEMA_VERSION}": schema_of(DoctorDocument),
        f"config-v{CONFIG_SCHEMA_VERSION}": config_schema(),
        f"fleet-v{FLEET_SCHEMA_VERSION}": schema_of(FleetDocument),
        f"agent-status-v{AGENT_STATUS_SCHEMA_VERSION}": schema_of(AgentStatus),
    }


def schema_of(document: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a document, the same under every version of Python. Pure.

    Docstrings become descriptions, without the indentation that Python keeps up to 3.12.
    """
    schema = msgspec.json.schema(document)
    for definition in schema["$defs"].values():
        definition["description"] = inspect.cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Made by `make schema` from {document.__module__.replace('.', '/')}.py",
        **schema,
    }


def main(directory: str) -> None:
    """Write the schemas into `directory`."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, found in schemas().items():
        (target / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
