"""Shell completion, and the same commands as a kubectl plugin: the installed programs themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent import __version__

_BIN = Path(sys.executable).parent


def _complete(*words: str) -> list[str]:
    """Return what the shell would offer for the last word."""
    done = subprocess.run(
        [_BIN / "nodeagent"],
        env={
            **os.environ,
            "_NODEAGENT_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["nodeagent", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_options_and_values_are_completed() -> None:
    assert _complete("fl") == ["fleet"]
    assert "--watch" in _complete("fleet", "--")
    assert _complete("fleet", "-o", "j") == ["json"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    done = subprocess.run(
        [_BIN / "nodeagent", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"_NODEAGENT_COMPLETE={shell}_complete" in done.stdout


def test_kubectl_finds_the_plugin() -> None:
    done = subprocess.run(
        [_BIN / "kubectl-nodeagent", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"nodeagent {__version__}\n"
