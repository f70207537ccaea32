"""The Vagrantfile and the scripts, as far as they can be checked without a virtual machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.testbed.vagrant.machine_root import REPOSITORY
from tests.testbed.vagrant.render import node_addresses, settings

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_SCRIPTS = REPOSITORY / "tests" / "testbed" / "vagrant"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _vagrant(tmp_path: Path, **variables: str) -> CompletedProcess[str]:
    """Validate the Vagrantfile: all of it is run but the blocks of providers, of which none need be here."""
    # Vagrant writes a directory next to the Vagrantfile.
    shutil.copytree(_SCRIPTS, tmp_path / "tests" / "testbed" / "vagrant")
    shutil.copy(REPOSITORY / "Vagrantfile", tmp_path)
    # Nothing is installed in that home: looking for plugins takes a quarter of the time.
    home = {"HOME": str(tmp_path), "VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_NO_PLUGINS": "1"}
    return subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **home, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("variables", "machines"),
    [
        pytest.param({}, ["lb", "cp", "node1", "node2"], marks=pytest.mark.matrix),
        ({"NODES": "1", "KUBE_PROXY_MODE": "ipvs", "NODEAGENT": "0"}, ["lb", "cp", "node1"]),
    ],
)
def test_vagrant_finds_it_valid(tmp_path: Path, variables: dict[str, str], machines: list[str]) -> None:
    done = _vagrant(tmp_path, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Vagrantfile validated successfully." in done.stdout
    assert re.findall(r"^==> (\w+):", done.stdout, re.MULTILINE) == machines


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("NODES", "ten", "NODES is a number from 1 to 9, not ten"),
        pytest.param(
            *("KUBE_PROXY_MODE", "ebpf", "KUBE_PROXY_MODE is one of nftables, iptables, ipvs, not ebpf"),
            marks=pytest.mark.matrix,
        ),
        pytest.param("NODEAGENT", "no", "NODEAGENT is 0 or 1, not no", marks=pytest.mark.matrix),
        pytest.param("PATIENCE", "0", "PATIENCE is a number from 1 to 99, not 0", marks=pytest.mark.matrix),
    ],
)
def test_a_wrong_variable_is_refused_before_anything_is_made(
    tmp_path: Path, variable: str, value: str, complaint: str
) -> None:
    done = _vagrant(tmp_path, **{variable: value})
    assert done.returncode != 0
    assert complaint in done.stderr


def test_every_script_that_a_machine_is_provisioned_with_is_there_and_can_be_run() -> None:
    named = set(re.findall(r'"(\w+\.sh)', (REPOSITORY / "Vagrantfile").read_text("utf-8")))
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
