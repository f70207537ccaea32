"""The table of all nodes, as data (a documented, versioned schema: docs/schema/) and as text for a person."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct

from nodeagent.agent.reporting.status_file import VerdictCounts
from nodeagent.cli.terminal import Line, Styled
from nodeagent.errors import one_line
from nodeagent.fleet.asking import ORDER, NodeRow, NodeState, exit_code, worst_first
from nodeagent.fleet.asking import NodeRow as Row

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


# The fleet as a table for a person, the worst node first. Pure.


_COLOURS: Mapping[NodeState, str] = {
    "no-pod": "red",
    "not-ready": "red",
    "drifted": "red",
    "not-answering": "yellow",
    "unreadable": "yellow",
    "in-sync": "green",
}
_TITLES = ("NODE", "STATE", "COMPONENT", "VERSION", "LBS", "HOSTNAMES", "LAST SYNC")


def fleet_lines(rows: Iterable[NodeRow]) -> list[Line]:
    """Return the table, and a line that sums it up."""
    ordered = worst_first(rows)
    cells = [_cells(row) for row in ordered]
    widths = [max(map(len, column)) for column in zip(_TITLES, *cells, strict=True)]
    lines: list[Line] = [Styled("  ".join((*_padded(_TITLES, widths), "WHY")), bold=True)]
    for row, texts in zip(ordered, cells, strict=True):
        node, state, *others = _padded(texts, widths)
        why = one_line(row.reason)
        lines.append((f"{node}  ", Styled(state, _COLOURS[row.state]), "  ", "  ".join((*others, why))))
    return [*lines, "", _sum(ordered)]


def age(seconds: float) -> str:
    """Return a duration in the largest unit that tells it: `42s`, `12m`, `5h`, `3d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _cells(row: NodeRow) -> tuple[str, ...]:
    cells = (
        row.node,
        row.state,
        ", ".join(row.components),
        row.version,
        _served(row.load_balancers),
        _served(row.hostnames),
        "" if row.last_sync_seconds is None else age(row.last_sync_seconds),
    )
    return tuple(one_line(cell) or "-" for cell in cells)


def _served(counts: VerdictCounts | None) -> str:
    """`3 served`, with what is refused; what is skipped is nobody's concern."""
    if counts is None:
        return ""
    return f"{counts.served}" + (f" ({counts.refused} refused)" if counts.refused else "")


def _padded(texts: Iterable[str], widths: Iterable[int]) -> Iterator[str]:
    return (f"{text:{width}}" for text, width in zip(texts, widths, strict=True))


def _sum(rows: list[NodeRow]) -> Styled:
    if not rows:
        return Styled("fleet: no node has, or should have, a pod of nodeagent", "yellow")
    counts = Counter(row.state for row in rows)
    others = ", ".join(f"{counts[state]} {state}" for state in ORDER[:-1] if counts[state])
    worst = next(state for state in ORDER if counts[state])
    text = f"fleet: {counts['in-sync']} of {len(rows)} nodes in sync" + (f"; {others}" if others else "")
    return Styled(text, _COLOURS[worst])
