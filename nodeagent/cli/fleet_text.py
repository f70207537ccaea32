"""The fleet as a table for a person, the worst node first. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodeagent.agent.telemetry.status_file import VerdictCounts
from nodeagent.cli.terminal import Line, Styled
from nodeagent.errors import one_line
from nodeagent.fleet.row import ORDER, NodeRow, NodeState, worst_first

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
