"""The demo shows the main job, and a visitor finds the world standing; neither leaves anything behind."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.root import needs_root
from tests.testbed.demo import STORY
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS
from tests.testbed.processes import HEARS_CTRL_C
from tests.testbed.telling import FAILED, INTERRUPTED

_ROOT = Path(__file__).parents[2]
_COMMAND = [sys.executable, "-m", "tests.testbed.demo"]
_VISIT = [sys.executable, "-m", "tests.testbed.visit"]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=110, check=False)


@needs_root
@pytest.mark.parametrize(
    "kind",
    [
        # What differs between them is asserted by tests/endtoend.
        pytest.param(kind, marks=() if kind == KUBE_PROXY_KINDS[0] else pytest.mark.matrix)
        for kind in KUBE_PROXY_KINDS
    ],
)
def test_everything_is_observed(kind: str) -> None:
    done = _run(*_COMMAND, "--kube-proxy", kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.search(r"^passed: all \d+ steps were observed, in \d+\.\d s$", done.stdout, re.MULTILINE)
    for step in STORY:
        assert step.title in done.stdout
    assert "| node node1 is affected and not fixed yet: " in done.stdout
    assert "| node node1 is healthy: " in done.stdout
    assert "! repair" not in done.stdout
    assert "\x1b" not in done.stdout, "colors are for a terminal"


_WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]


@needs_root
@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        (_COMMAND, FAILED),
        (_VISIT, FAILED),
        ([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/linux", __file__], 0),
    ],
    ids=["demo", "world", "test"],
)
def test_where_root_may_make_no_namespaces_one_line_says_so(command: list[str], exit_code: int) -> None:
    done = _run(*_WITHOUT_RIGHTS, *command)
    said = done.stdout + done.stderr
    assert done.returncode == exit_code, said
    assert said.count("--privileged") == 1
    assert "Operation not permitted" not in said


@needs_root
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*HEARS_CTRL_C, *_COMMAND],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if "nodeagent apply" in line:
                break
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=20) == INTERRUPTED
        assert process.stderr.read() == ""
    assert "Interrupted after" in rest
    assert list(tmp_path.iterdir()) == []
    started = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in started


@contextmanager
def _visit() -> Iterator[str]:
    """Bring a world up as a visitor does; yields what is printed, and ends it with Ctrl-D's end of input."""
    with subprocess.Popen(
        _VISIT, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = ""
        while "Ctrl-D" not in told:
            line = process.stdout.readline()
            assert line, told
            told += line
        yield told
        process.stdin.close()
        assert process.wait(timeout=20) == 0


@needs_root
def test_what_is_printed_leads_into_the_world() -> None:
    with _visit() as told:
        entry = re.search(r"^  node1 +(.* )bash$", told, re.MULTILINE)
        variables = re.search(r"^  (export .*)$", told, re.MULTILINE)
        pull = re.search(r"^  (ctr .*)$", told, re.MULTILINE)
        daemon = re.search(r"^  (nodeagent run .*) & ", told, re.MULTILINE)
        logs = re.search(r"^Logs: (.*)$", told, re.MULTILINE)
        assert entry is not None
        assert variables is not None
        assert pull is not None
        assert daemon is not None
        assert logs is not None

        def on_node(command: str) -> subprocess.CompletedProcess[str]:
            return _run("bash", "-c", f"{variables[1]}\nexec {entry[1]} bash -c {shlex.quote(command)}")

        assert on_node("hostname").stdout == "node1\n"
        assert on_node("curl -sS https://site.example.test/").returncode != 0
        assert on_node("nodeagent doctor").returncode == 2
        assert on_node("nodeagent plan").returncode == 2
        assert on_node("nodeagent apply").returncode == 0
        assert on_node("curl -sS https://site.example.test/").stdout.startswith("client=192.0.2.11 ")
        assert on_node(pull[1]).returncode == 0
        repaired = on_node(
            f"{daemon[1]} & agent=$!; nft delete table inet nodeagent; "
            "until nft list table inet nodeagent; do kill -0 $agent || exit; done; kill $agent; wait $agent"
        )
        assert repaired.returncode == 0, repaired.stderr
        assert list(Path(logs[1]).glob("pod1-nginx-error*"))
    assert not Path(logs[1]).exists()
