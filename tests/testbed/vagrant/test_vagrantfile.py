"""The Vagrantfile and the scripts, as far as they can be checked without a virtual machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCRIPTS = Path(__file__).parent
_VAGRANTFILE = _SCRIPTS.parents[2] / "Vagrantfile"


def test_every_script_that_a_machine_is_provisioned_with_is_there_and_can_be_run() -> None:
    named = set(re.findall(r'"(\w+\.sh)', _VAGRANTFILE.read_text("utf-8")))
    there = {script.name for script in _SCRIPTS.glob("*.sh")} - {"acceptance.sh", "box.sh", "common.sh"}
    assert named == there
    assert all(os.access(_SCRIPTS / name, os.X_OK) for name in there)
