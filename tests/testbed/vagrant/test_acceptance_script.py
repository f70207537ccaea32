"""acceptance.sh, run whole on a copy of the tree; programs replace `vagrant` and its Python."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.testbed.addresses import REGISTRY
from tests.testbed.vagrant.machine_root import REPOSITORY
from tests.testbed.vagrant.manifests import IMAGE
from tests.testbed.vagrant.render import settings

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

_SCRIPTS = REPOSITORY / "tests" / "testbed" / "vagrant"
_PINNED = settings({})
_SSH_CONFIG = "Host cp\n  HostName 127.0.0.1\n  Port 2222\n"
_KUBECONFIG = """\
clusters:
- name: default
  cluster: {server: "https://127.0.0.1:6443"}
"""
_VAGRANT = f"""#!/bin/sh
# Stands for vagrant and the machines that it made.
case "$*" in
"ssh-config") printf %s {shlex.quote(_SSH_CONFIG)} ;;
"ssh cp --command sudo cat /etc/rancher/k3s/k3s.yaml")
    test ! -e "${{0%/*}}/down" || {{ echo 'cp is not running' >&2; exit 1; }}
    # At a terminal vagrant asks for one on the machine, too, and its lines end so.
    printf %s {shlex.quote(_KUBECONFIG)} | sed 's/$/\\r/'
    ;;
*) echo "vagrant $*: unknown here" >&2; exit 2 ;;
esac
"""
_PYTHON = """#!/bin/sh
# Stands for the Python that plays the steps: notes where it is, and its arguments.
printf '%s\\n' "$PWD" "$@" >"${0%/*}/noted"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the working tree, as far as the script reads it, with the replacements next to it."""
    tree = tmp_path / "tree"
    shutil.copytree(_SCRIPTS, tree / "tests" / "testbed" / "vagrant")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("vagrant", _VAGRANT), ("python", _PYTHON)):
        (programs / name).write_text(text, "ascii")
        (programs / name).chmod(0o755)
    return tree


def test_the_kubeconfig_is_for_its_owner_alone_and_leads_to_cp(tree: Path) -> None:
    done = _accept(tree)
    assert done.returncode == 0, done.stderr
    file = tree / ".vagrant" / "kubeconfig"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (cluster,) = yaml.safe_load(file.read_bytes())["clusters"]
    assert cluster == {"name": "default", "cluster": {"server": f"https://{_PINNED['CP_ADDRESS']}:6443"}}
    assert (tree / ".vagrant" / "ssh-config").read_text("ascii") == _SSH_CONFIG


@pytest.mark.parametrize(("nodes", "count"), [("", 2), ("3", 3)])
def test_the_steps_are_played_on_the_machines_that_there_are(tree: Path, nodes: str, count: int) -> None:
    done = _accept(tree, nodes)
    assert done.returncode == 0, done.stderr
    where, *arguments = (tree.parent / "programs" / "noted").read_text("utf-8").splitlines()
    assert where == str(tree)
    assert arguments[:3] == ["-m", "tests.acceptance", "cluster"]
    pairs = list(zip(arguments[3::2], arguments[4::2], strict=True))
    assert [value for name, value in pairs if name == "--node"] == [f"node{n + 1}" for n in range(count)]
    kustomization = "tests/testbed/vagrant/nodeagent"
    assert {name: value for name, value in pairs if name != "--node"} == {
        "--kubeconfig": ".vagrant/kubeconfig",
        "--node-command": "ssh -F .vagrant/ssh-config -o LogLevel=ERROR {node} sudo -n -- {command}",
        "--load-balancer": _PINNED["LB_ADDRESS"],
        "--image": f"{REGISTRY}/testbed:1",
        "--pod-image": IMAGE,
        "--kustomization": kustomization,
    }
    assert (tree / kustomization / "kustomization.yaml").is_file()


def test_without_machines_no_step_is_played(tree: Path) -> None:
    (tree.parent / "programs" / "down").touch()
    done = _accept(tree)
    assert done.returncode == 1
    assert "cp is not running" in done.stderr
    assert not (tree.parent / "programs" / "noted").exists()


def _accept(tree: Path, nodes: str = "") -> CompletedProcess[str]:
    """Run the script as a user with the usual umask does, from a directory of his own."""
    programs = tree.parent / "programs"
    return subprocess.run(
        [tree / "tests" / "testbed" / "vagrant" / "acceptance.sh", programs / "python"],
        cwd=tree.parent,
        env={"PATH": f"{programs}:{os.environ['PATH']}"} | ({"NODES": nodes} if nodes else {}),
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
