"""`make lint` sees what fails when it runs: dataclasses.replace of a msgspec Struct."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import Struct
from mypy import api

_CONFIG = Path(__file__).parents[2] / "pyproject.toml"

_HEAD = """
from dataclasses import dataclass, replace
from msgspec import Struct

class Value(Struct, frozen=True):
    number: int

@dataclass(frozen=True)
class Other:
    number: int

"""


class _Value(Struct, frozen=True):
    number: int


@dataclass(frozen=True)
class _Other:
    number: int


def _complaints(line: str, directory: Path) -> str:
    """What mypy, with this project's configuration, says of a line."""
    file = directory / "example.py"
    file.write_text(f"{_HEAD}{line}\n", encoding="ascii")
    said, trouble, _ = api.run([f"--config-file={_CONFIG}", f"--cache-dir={directory}", str(file)])
    assert trouble == ""
    return said


def test_a_struct_can_not_be_replaced() -> None:
    assert replace(_Other(1), number=2) == _Other(2)
    with pytest.raises(TypeError):
        replace(_Value(1), number=2)  # type: ignore[misc] # what the check is for


def test_mypy_says_so(tmp_path: Path) -> None:
    lines = """
replace(Value(1), number=2)
replace(Other(1), number=2)

def either(one: Value | Other) -> None:
    replace(one, number=2)
"""
    said = _complaints(lines, tmp_path)
    assert said.count("fails for a msgspec Struct") == 2, said
    assert "Found 2 errors" in said
