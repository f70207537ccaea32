"""The virtual and the emulated machines, as far as they can be checked without one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from nodeagent.config.reading import parse_config
from tests.daemonset.kustomize import render
from tests.daemonset.manifests import configuration, workload
from tests.testbed.addresses import NAMES
from tests.testbed.certificates import make_certificates
from tests.testbed.vagrant.manifests import Object, manifests
from tests.testbed.vagrant.render import settings

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_AGENT = _HERE / "nodeagent"


@pytest.fixture
def objects(tmp_path: Path) -> list[Object]:
    make_certificates(tmp_path / "certificates", NAMES)
    return manifests(tmp_path / "certificates", "192.168.56.10")


def test_kubernetes_knows_every_field(objects: list[Object]) -> None:
    major, minor, _ = settings({})["K3S_VERSION"].removeprefix("v").split(".", 2)
    for obj in [*objects, *render(_AGENT)]:
        kubernetes_validate.validate(obj, f"{major}.{minor}", strict=True)


def test_nodeagent_is_configured_as_in_the_namespaces() -> None:
    objects = render(_AGENT)
    config = parse_config(configuration(objects), "vagrant")
    by_hand = yaml.safe_load(_HERE.with_name("nodeagent.yaml").read_text("utf-8"))
    theirs = yaml.safe_load(configuration(objects))
    assert theirs["loadBalancers"] == by_hand["loadBalancers"]
    assert theirs["hosts"] == by_hand["hosts"] | {"file": "/host/etc/hosts"}
    assert str(config.hosts.file) == "/host/etc/hosts"
    assert workload(objects).container["image"] == "nodeagent:vagrant"


def test_every_script_that_a_machine_is_provisioned_with_is_there_and_can_be_run() -> None:
    named = set(re.findall(r'"(\w+\.sh)', (_ROOT / "Vagrantfile").read_text("utf-8")))
    other = {"acceptance.sh", "box.sh", "common.sh", "settings.sh"}
    there = {script.name for script in _HERE.glob("*.sh")} - other
    assert named == there
    assert all(os.access(_HERE / name, os.X_OK) for name in there)


def test_the_environment_overrides_testbed_env_in_scripts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LB_ADDRESS", "192.0.2.1")
    script = f". {_HERE}/settings.sh; echo $LB_ADDRESS $CP_ADDRESS"
    said = subprocess.check_output(["bash", "-c", script], text=True)
    assert said.split() == ["192.0.2.1", settings({})["CP_ADDRESS"]]
    assert not [script for script in _HERE.glob("*.sh") if "source=testbed.env" in script.read_text("utf-8")]


def test_every_test_that_an_emulated_kernel_runs_is_there() -> None:
    inside = (_ROOT / "tests/testbed/kernels/inside").read_text("utf-8")
    named = re.findall(r"^ +(tests/[\w/]+\.py)", inside, re.MULTILINE)
    assert named
    assert not [path for path in named if not (_ROOT / path).exists()]
