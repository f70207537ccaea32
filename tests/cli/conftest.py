"""Fixtures: a command line to call in process, with objects and a configuration in a directory of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cli.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """One Service that is served and one Ingress behind it; the caller's own environment says nothing."""
    for name in [name for name in os.environ if name.startswith("NODEAGENT_")]:
        monkeypatch.delenv(name)
    return CommandLine(tmp_path, capsys)
