"""Shell completion, and the same commands as a kubectl plugin: the installed programs themselves."""

import os
import subprocess
import sys
from pathlib import Path

from nodeagent import __version__

_BIN = Path(sys.executable).parent


def _said(program: str, *arguments: str, **variables: str) -> str:
    env = os.environ | variables
    done = subprocess.run(
        [_BIN / program, *arguments], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def _complete(*words: str) -> list[str]:
    """Return what the shell would offer for the last word."""
    line = {"COMP_WORDS": " ".join(["nodeagent", *words]), "COMP_CWORD": str(len(words))}
    said = _said("nodeagent", _NODEAGENT_COMPLETE="bash_complete", **line)
    return [offer.partition(",")[2] for offer in said.splitlines()]


def test_commands_options_and_values_are_completed() -> None:
    assert _complete("fl") == ["fleet"]
    assert "--timeout" in _complete("fleet", "--")
    assert _complete("fleet", "-o", "j") == ["json"]


def test_kubectl_finds_the_plugin() -> None:
    assert _said("kubectl-nodeagent", "--version") == f"nodeagent {__version__}\n"
