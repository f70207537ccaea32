"""values.yaml, its schema and the chart's README.md name the same values."""

import json
from collections.abc import Iterator
from typing import Any

from release.chart_readme import README, rows, table, written
from release.schemas import CHART, VALUES_SCHEMA

_VALUES = (CHART / "values.yaml").read_text("utf-8")
_SCHEMA = json.loads(VALUES_SCHEMA.read_text("utf-8"))
_IGNORED = {("relay", "image"), ("global",)}
"""Accepted, so that values of earlier charts are, and because Helm adds it."""


def _known(schema: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the values that a schema knows, but not what is in `config` or in Kubernetes' own objects."""
    for name, about in schema["properties"].items():
        if name != "config" and "properties" in about and about.get("additionalProperties") is False:
            yield from _known(about, *path, name)
        else:
            yield (*path, name)


def test_the_readme_is_made_of_them() -> None:
    readme = README.read_text("utf-8")
    assert written(readme, table(_VALUES, _SCHEMA)) == readme, "run `make schema`"


def test_schema_and_values_have_the_same_keys() -> None:
    assert {row.path for row in rows(_VALUES) if not row.holds_others} == set(_known(_SCHEMA)) - _IGNORED
