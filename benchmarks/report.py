"""Figures as a table for a person, or as a JSON document."""

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure, Goal


def machine() -> dict[str, Any]:
    """Return what the numbers hold for: cores, kernel, versions, and how busy the machine is."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kubernetesClient": version("kubernetes"),
        "nftables": _first_line("nft", "--version"),
        "haproxy": _first_line("haproxy", "-v"),
        "loadBefore": load(),
    }


def load() -> list[float]:
    """Return the machine's load over the last one, five and fifteen minutes."""
    return [round(average, 2) for average in os.getloadavg()]


def document(figures: Iterable[Figure], about: dict[str, Any]) -> bytes:
    """Return the figures as JSON."""
    found = {
        "schemaVersion": "1",
        "machine": about,
        "figures": [
            {
                "part": figure.part,
                "what": figure.what,
                "unit": figure.unit,
                "names": figure.names,
                "values": figure.columns,
                "goal": figure.goal,
                "meetsGoal": figure.meets_goal,
            }
            for figure in figures
        ],
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def table(part: str, figures: Sequence[Figure]) -> str:
    """One part's figures; of equal columns."""
    headings = list(figures[0].columns)
    widest = max(len(figure.what) for figure in figures)
    lines = [f"\n{part} ({figures[0].unit})"]
    lines.append(f"  {'':<{widest}}  {'names':>6}" + "".join(f"{heading:>11}" for heading in headings))
    for figure in figures:
        names = "" if figure.names is None else f"{figure.names:,}"
        numbers = "".join(f"{_number(value):>11}" for value in figure.columns.values())
        lines.append(f"  {figure.what:<{widest}}  {names:>6}{numbers}{_goal(figure)}")
    return "\n".join(lines)


def tables(figures: Sequence[Figure]) -> str:
    """All parts, in the order in which they first appear."""
    parts = dict.fromkeys(figure.part for figure in figures)
    return "\n".join(table(part, [figure for figure in figures if figure.part == part]) for part in parts)


def _goal(figure: Figure) -> str:
    goal: Goal | None = figure.goal
    if goal is None:
        return ""
    return f"   {goal.column} <= {goal.limit:g}: {'met' if figure.meets_goal else 'MISSED'}"


def _number(value: float) -> str:
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or ["unknown"])[0]
