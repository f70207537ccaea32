"""The fleet as data: a documented, versioned schema (docs/schema/)."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from nodeagent.agent.telemetry.status_file import VerdictCounts
from nodeagent.cli.doctor_document import schema_of
from nodeagent.fleet.row import ORDER, NodeState, exit_code, worst_first
from nodeagent.fleet.row import NodeRow as Row

FLEET_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field or state is removed or changes its meaning; new ones alone do not raise it."""


class FleetNode(Struct, frozen=True, rename="camel"):
    """One node.

    `reason` says why it is not in sync, `components` which parts are concerned. What the agent did not say is
    null, or empty for `pod` and `version`; `lastSyncSeconds` is the age of the last full sync.
    """

    node: str
    state: NodeState
    reason: str
    components: list[str]
    pod: str
    version: str
    load_balancers: VerdictCounts | None
    hostnames: VerdictCounts | None
    last_sync_seconds: float | None


class FleetDocument(Struct, frozen=True, rename="camel"):
    """The whole answer, the worst node first.

    `overall` is what the exit code says: in-sync 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Fleet"]
    overall: Literal["in-sync", "affected", "cannot-tell"]
    counts: dict[NodeState, int]
    nodes: list[FleetNode]


def document(rows: Iterable[Row]) -> str:
    """Return the answer as indented JSON with a final newline. Pure."""
    ordered = worst_first(rows)
    counts = Counter(row.state for row in ordered)
    found = FleetDocument(
        schema_version=FLEET_SCHEMA_VERSION,
        kind="Fleet",
        overall=("in-sync", "cannot-tell", "affected")[exit_code(ordered)],
        counts={state: counts[state] for state in ORDER},
        nodes=[
            FleetNode(
                row.node,
                row.state,
                row.reason,
                list(row.components),
                row.pod,
                row.version,
                row.load_balancers,
                row.hostnames,
                row.last_sync_seconds,
            )
            for row in ordered
        ],
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def fleet_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the document. Pure."""
    return schema_of(FleetDocument, "nodeagent/cli/fleet_document.py")
