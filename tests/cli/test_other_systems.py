"""Another system than Linux, and a machine without python-iptables: what reads objects alone works there."""

import subprocess
import sys
from pathlib import Path

from tests.cli.command_line import CommandLine

_ROOT = Path(__file__).parents[2]
_ELSEWHERE = """
import importlib.abc, os, platform, select, shutil, signal, socket, sys, time

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"iptc", "pyroute2"} or name.startswith("watchdog.observers.inotify"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
platform.system = lambda: "Darwin"
shutil.which = lambda *_, **__: None
for module, names in {
    socket: "AF_NETLINK AF_PACKET SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_PEERCRED TCP_USER_TIMEOUT",
    os: "memfd_create O_TMPFILE O_PATH sched_getaffinity setns unshare pidfd_open splice eventfd",
    time: "CLOCK_BOOTTIME",
    select: "epoll",
    signal: "sigtimedwait",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
from nodeagent.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def _elsewhere(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _ELSEWHERE, *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


def test_plan_shows_what_is_decided_by_the_objects(command_line: CommandLine) -> None:
    done = _elsewhere("plan", *command_line.options)
    assert done.returncode == 1
    assert "  served   ingress/controller: " in done.stdout
    assert "this machine does not run Linux" in done.stdout
    assert done.stderr == ""


def test_the_doctor_judges_the_objects(command_line: CommandLine) -> None:
    done = _elsewhere("doctor", *command_line.options)
    assert "is affected, judging by its objects alone: ingress/controller" in " ".join(done.stdout.split())
    assert done.stderr == ""


def test_fleet_gets_as_far_as_the_api_server(tmp_path: Path) -> None:
    done = _elsewhere("fleet", "--kubeconfig", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "there is no such file" in done.stderr
