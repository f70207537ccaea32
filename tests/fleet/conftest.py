"""Fixtures: a simulated API server, and the command line with a kubeconfig for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from nodeagent.cli.main import run
from tests.apiserver import ApiServer
from tests.cli.command_line import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ask = Callable[..., Reply]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """Provide a server that listens on loopback."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def ask(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ask:
    """Call `nodeagent COMMAND ...` in this process."""
    for name in [name for name in os.environ if name.startswith("NODEAGENT_") or "proxy" in name.lower()]:
        monkeypatch.delenv(name)

    def call(command: str, *options: str) -> Reply:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        code = run([command, "--kubeconfig", str(kubeconfig), *options])
        said = capsys.readouterr()
        return Reply(code, said.out, said.err)

    return call
