"""The table of values in the chart's README.md, made of values.yaml and its schema: `make schema`.

python -m release.chart_readme
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from release.schemas import CHART, VALUES_SCHEMA

README = CHART / "README.md"
_VALUES = CHART / "values.yaml"
_HEADING = "## Values\n\n"
_LINE = re.compile(r"( *)(?:# ?(?P<said>.*)|(?P<key>\w+):.*)")


class Row(NamedTuple):
    """A value: its path, what its comment says first, and whether it only holds other values."""

    path: tuple[str, ...]
    text: str
    holds_others: bool


def rows(text: str) -> Iterator[Row]:
    """Yield the values of a values.yaml in their order, those without a comment with an empty text. Pure."""
    values = yaml.safe_load(text)
    path: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            said.clear()
        elif found["key"] is None:
            said.append(found["said"])
        else:
            path[len(found[1]) // 2 :] = [found["key"]]
            holds_others = line.endswith(":") and isinstance(_at(values, path), dict)
            yield Row(tuple(path), " ".join("\n".join(said).split("\n\n")[0].split()), holds_others)
            said.clear()


def table(text: str, schema: Mapping[str, Any]) -> str:
    """Return the table of a values.yaml with its schema. Pure."""
    values = yaml.safe_load(text)
    lines = ["| value | type | default | what it does |", "|---|---|---|---|"]
    for row in rows(text):
        if row.holds_others:
            if row.text:
                lines.append(f"| `{'.'.join(row.path)}` | | | {row.text} |")
            continue
        found = schema
        for name in row.path:
            found = found["properties"][name]
        default = _at(values, row.path)
        shown = "" if default in (None, "") else f"`{_in_a_line(default)}`"
        lines.append(f"| `{'.'.join(row.path)}` | {_type(found)} | {shown} | {row.text} |")
    return "\n".join(lines) + "\n"


def written(readme: str, made: str) -> str:
    """Return a README with this table in the place of its own. Pure."""
    before, _, old = readme.partition(_HEADING)
    _, _, after = old.partition("\n\n")
    return f"{before}{_HEADING}{made}\n{after}"


def _in_a_line(value: Any) -> str:  # noqa: ANN401 - whatever a value is
    written = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return str(written.splitlines()[0])


def _at(values: Any, path: list[str] | tuple[str, ...]) -> Any:  # noqa: ANN401 - whatever a value is
    for name in path:
        values = values[name]
    return values


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one)
    if "$ref" in schema:
        return "object"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join("empty" if kind == "null" else kind for kind in kinds)


def main() -> None:
    """Write the table into the README."""
    made = table(_VALUES.read_text("utf-8"), json.loads(VALUES_SCHEMA.read_text("utf-8")))
    README.write_text(written(README.read_text("utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
