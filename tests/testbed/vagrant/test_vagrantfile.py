"""The Vagrantfile and what emulated machines run, as far as it can be checked without one."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCRIPTS = Path(__file__).parent
_REPOSITORY = _SCRIPTS.parents[2]
_VAGRANTFILE = _REPOSITORY / "Vagrantfile"


def test_every_script_that_a_machine_is_provisioned_with_is_there_and_can_be_run() -> None:
    named = set(re.findall(r'"(\w+\.sh)', _VAGRANTFILE.read_text("utf-8")))
    there = {script.name for script in _SCRIPTS.glob("*.sh")} - {"acceptance.sh", "box.sh", "common.sh"}
    assert named == there
    assert all(os.access(_SCRIPTS / name, os.X_OK) for name in there)


def test_every_test_that_an_emulated_kernel_runs_is_there() -> None:
    inside = (_REPOSITORY / "tests/testbed/kernels/inside").read_text("utf-8")
    named = re.findall(r"^ +(tests/[\w/]+\.py)", inside, re.MULTILINE)
    assert named
    assert not [path for path in named if not (_REPOSITORY / path).exists()]
