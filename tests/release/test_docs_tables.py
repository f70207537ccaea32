"""What docs/ repeats of the code is made from it, and each code has its meaning."""

import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator

from nodeagent.doctor.findings import Code
from release.docs_tables import pages, reasons, without_meaning
from release.schemas import VALUES_SCHEMA, chart_config_schema, schemas

_TESTS = Path(__file__).parents[1]
_SCHEMAS = _TESTS.parent / "docs" / "schema"


def test_the_pages_repeat_the_code_word_by_word() -> None:
    differing = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    assert differing == [], "run `make docs`"


def test_the_published_schemas_are_the_codes_own() -> None:
    published = {file.stem: json.loads(file.read_text("utf-8")) for file in _SCHEMAS.iterdir()}
    assert published == schemas(), "run `make schema`"
    for schema in published.values():
        Draft202012Validator.check_schema(schema)
    config = json.loads(VALUES_SCHEMA.read_text("utf-8"))["properties"]["config"]
    assert config == chart_config_schema(), "run `make schema`"


def test_every_code_has_its_meaning() -> None:
    assert without_meaning() == []


def test_every_code_has_its_test() -> None:
    """A situation, a state of a node (tests/doctor/golden), or a test that names it."""
    asserted = "\n".join(
        path.read_text("utf-8")
        for pattern in (
            *("situations/*/expected.yaml", "doctor/golden/*.txt", "doctor/verdicts.yaml"),
            *("plan/decisions.yaml", "**/test_*.py"),
        )
        for path in _TESTS.glob(pattern)
    )
    codes = {*reasons(), *(code.value for code in Code)}
    assert codes - set(re.findall(r"\w+", asserted)) == set()
