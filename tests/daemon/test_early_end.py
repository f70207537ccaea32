"""A signal to end that comes while an agent starts, as process 1 of its container."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.root import needs_root
from tests.testbed.waiting import wait_until

pytestmark = needs_root

_TREE = Path(__file__).parents[2]
_KUBECONFIG = """\
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""
_SIGTERM = 1 << (signal.SIGTERM - 1)


@pytest.fixture(params=[["run", "--node", "node1"], ["coredns", "run"]], ids=["agent", "coredns"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A daemon that stays off the machine, and finds no API server."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (tmp_path / "kubeconfig").write_text(_KUBECONFIG, encoding="ascii")
    config = tmp_path / "nodeagent.yaml"
    config.write_text(
        f"relay: {{launch: true, runDir: {tmp_path}/run}}\n"
        "dnat: {backend: none}\n"
        "telemetry: {listen: ''}\n"
        f"hosts: {{file: {tmp_path}/etc/hosts, verify: allow}}\n",
        encoding="ascii",
    )
    return [*request.param, "--config", str(config), "--kubeconfig", str(tmp_path / "kubeconfig")]


@pytest.fixture
def container(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon as process 1 of a pid namespace, from its first moment on."""
    namespaces = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"]
    with subprocess.Popen([*namespaces, sys.executable, "-m", "nodeagent", *command], cwd=_TREE) as process:
        yield process
        process.kill()


def test_it_is_not_lost(container: subprocess.Popen[bytes]) -> None:
    """The kernel drops a signal to process 1 that has no handler."""
    wait_until(lambda: _blocks_sigterm(container), "a start that keeps signals")
    os.kill(_first(container), signal.SIGTERM)
    assert container.wait(20) == 0


def _first(container: subprocess.Popen[bytes]) -> int:
    """The container's process 1, as this namespace numbers it; 0 if there is none yet."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text(encoding="ascii")
    return int(children.split()[0]) if children.split() else 0


def _blocks_sigterm(container: subprocess.Popen[bytes]) -> bool:
    first = _first(container)
    if not first:
        return False
    lines = Path(f"/proc/{first}/status").read_text(encoding="ascii").splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    # unshare blocks it, too, until just before it becomes the daemon; what is sent then is lost.
    return status["Name"] != "unshare" and bool(int(status["SigBlk"], 16) & _SIGTERM)
