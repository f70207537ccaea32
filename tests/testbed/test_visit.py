"""A visitor finds the world standing, can enter it by what is printed, and leaves nothing behind."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.root import needs_root

pytestmark = needs_root

_ROOT = Path(__file__).parents[2]
_ENDED = 0
_PENDING = 2


@contextmanager
def _visit() -> Iterator[str]:
    """Bring a world up as a visitor does; yields what is printed, and ends it with Ctrl-D's end of input."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.testbed.visit"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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
        assert process.wait(timeout=20) == _ENDED


def test_what_is_printed_leads_into_the_world() -> None:
    with _visit() as told:
        entry = re.search(r"^  node1 +(.* )bash$", told, re.MULTILINE)
        variables = re.search(r"^  (export .*)$", told, re.MULTILINE)
        pull = re.search(r"^  (ctr .*)$", told, re.MULTILINE)
        logs = re.search(r"^Logs: (.*)$", told, re.MULTILINE)
        assert entry is not None
        assert variables is not None
        assert pull is not None
        assert logs is not None

        def on_node(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", f"{variables[1]}\nexec {entry[1]} bash -c {shlex.quote(command)}"],
                cwd=_ROOT,
                capture_output=True,
                text=True,
                check=False,
            )

        assert on_node("hostname").stdout == "node1\n"
        assert on_node("curl -sS https://site.example.test/").returncode != 0
        assert on_node("nodeagent plan").returncode == _PENDING
        assert on_node("nodeagent apply").returncode == 0
        assert on_node("curl -sS https://site.example.test/").stdout.startswith("client=192.0.2.11 ")
        assert on_node(pull[1]).returncode == 0
        repaired = on_node(
            "nodeagent run --node node1 & agent=$!; nft delete table inet nodeagent; "
            "until nft list table inet nodeagent; do kill -0 $agent || exit; done; kill $agent; wait $agent"
        )
        assert repaired.returncode == 0, repaired.stderr
        assert list(Path(logs[1]).glob("pod1-nginx-error*"))
    assert not Path(logs[1]).exists()
