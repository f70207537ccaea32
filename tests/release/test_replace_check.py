"""`make lint` sees what fails when it runs: dataclasses.replace of a msgspec Struct.

mypy, which checks this file too, refuses an ignore that ignores nothing (`warn_unused_ignores`).
"""

from dataclasses import dataclass, replace

import pytest
from msgspec import Struct


class _Value(Struct, frozen=True):
    number: int


@dataclass(frozen=True)
class _Other:
    number: int


def _replaced(one: _Value | _Other) -> _Value | _Other:
    return replace(one, number=2)  # type: ignore[misc] # what the check is for


def test_a_struct_can_not_be_replaced() -> None:
    assert replace(_Other(1), number=2) == _replaced(_Other(1)) == _Other(2)
    with pytest.raises(TypeError):
        replace(_Value(1), number=2)  # type: ignore[misc] # what the check is for
    with pytest.raises(TypeError):
        _replaced(_Value(1))
