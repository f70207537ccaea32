"""The Dockerfile as a text: what a linter says of it, and what is promised of it; test_image.py builds it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.daemonset.image_root import DOCKERFILE

_LINES = re.sub(r"\s*\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text("utf-8"))).splitlines()
"""Its instructions, a line each."""


def test_the_linter_finds_nothing() -> None:
    """The file lists what the linter ignores, each with its reason."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_package_is_installed_by_its_hash() -> None:
    """And nothing is fetched to build one: what builds is locked, too."""
    runs = [part for line in _LINES if line.startswith("RUN ") for part in line.split(" && ")]
    fetching = [run for run in runs if re.search(r"pip .*\b(install|wheel|download)\b", run)]
    assert len(fetching) == 4
    for run in fetching:
        assert "--require-hashes" in run or "--no-index" in run or "--no-deps" in run, run
        assert "--no-build-isolation" in run or "build.txt" in run or "--no-index" in run, run
