"""The Vagrantfile and the scripts, as far as they can be checked without a virtual machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.testbed.vagrant.render import node_addresses, settings

_SCRIPTS = Path(__file__).parent
_VAGRANTFILE = _SCRIPTS.parents[2] / "Vagrantfile"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def test_every_script_that_a_machine_is_provisioned_with_is_there_and_can_be_run() -> None:
    named = set(re.findall(r'"(\w+\.sh)', _VAGRANTFILE.read_text("utf-8")))
    there = {script.name for script in _SCRIPTS.glob("*.sh")} - {"acceptance.sh", "box.sh", "common.sh"}
    assert named == there
    assert all(os.access(_SCRIPTS / name, os.X_OK) for name in there)


def test_what_is_pinned() -> None:
    pinned = settings({})
    assert _DIGEST.fullmatch(pinned["K3S_SHA256"])
    assert re.fullmatch(r"v1\.\d+\.\d+\+k3s\d+", pinned["K3S_VERSION"])
    assert re.fullmatch(r"12\.\d+\.\d+", pinned["BOX_VERSION"]), "Debian 12"
    assert settings({"K3S_SHA256": "another"})["K3S_SHA256"] == "another"
    assert str(node_addresses(2, pinned)["node2"]) == "192.168.56.22"
    taken = [pinned["LB_ADDRESS"], pinned["CP_ADDRESS"], *map(str, node_addresses(9, pinned).values())]
    assert len(set(taken)) == len(taken)
