"""A pod that ends while it starts: SIGTERM comes before its processes 1 have a handler for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.apiserver.server import write_kubeconfig
from tests.daemonset.kustomize import DAEMONSET, render
from tests.daemonset.manifests import containers, the
from tests.root import needs_root
from tests.testbed.processes import children
from tests.testbed.waiting import wait_until

pytestmark = needs_root

_TREE = Path(__file__).parents[2]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Options with which a daemon stays off the machine, and finds no API server."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", {"server": "http://127.0.0.1:1"}, "t")
    config = tmp_path / "nodeagent.yaml"
    config.write_text(
        f"relay: {{launch: true, runDir: {tmp_path}/run}}\n"
        "dnat: {backend: none}\n"
        "telemetry: {listen: ''}\n"
        f"hosts: {{file: {tmp_path}/etc/hosts, verify: allow}}\n",
        encoding="ascii",
    )
    return ["--config", str(config), "--kubeconfig", str(kubeconfig)]


def test_the_signal_is_not_lost(arguments: list[str], tmp_path: Path) -> None:
    """The kernel drops one to process 1 that is neither blocked nor handled; the kubelet sends no other."""
    daemonset = the(render(DAEMONSET / "base"), "DaemonSet")["spec"]["template"]["spec"]
    deployment = the(render(DAEMONSET / "coredns"), "Deployment", "nodeagent-coredns")["spec"]["template"][
        "spec"
    ]
    start = {
        name: one["command"] for spec in (daemonset, deployment) for name, one in containers(spec).items()
    }
    commands = [
        [*start["agent"], "--node", "node1", *arguments],
        [*start["relay"][:-1], str(tmp_path / "relay")],
        [*start["controller"], *arguments],
    ]
    for command in commands:
        with _container(command) as process:
            wait_until(partial(_begun, process), "its own first program")
            os.kill(_first(process), signal.SIGTERM)
            assert process.wait(30) == 0, command


@contextmanager
def _container(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The command as process 1 of a pid namespace."""
    namespaces = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen([*namespaces, *command], cwd=_TREE, env={**os.environ, "PATH": path}) as process:
        try:
            yield process
        finally:
            process.kill()


def _first(container: subprocess.Popen[bytes]) -> int:
    """The container's process 1, as this namespace numbers it; 0 if there is none yet."""
    return next(iter(children(container.pid)), 0)


def _begun(container: subprocess.Popen[bytes]) -> bool:
    first = _first(container)
    return bool(first) and Path(f"/proc/{first}/comm").read_text("ascii").strip() not in {"unshare", "env"}
