"""A dry run needs no root and no cluster, and changes nothing."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, needs_nft
from tests.components.hosts.samples import ONE, USER, render
from tests.root import needs_root

_ROOT = Path(__file__).parents[2]
_NOBODY = 65534
# The interpreter may lie where only root may look: what the command needs is loaded before.
_AS_NOBODY = """
import contextlib, io, os, sys
from nodeagent.cli.main import run
command, *options = sys.argv[1:]
if os.geteuid() == 0:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(["plan", *options])
        run([command, "--help"])
    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
sys.exit(run([command, *options]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can read, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-cli-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def readable(place: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(place, capsys)


@pytest.mark.parametrize("backend", [pytest.param("auto", marks=needs_nft), "none"])
def test_a_dry_run(readable: CommandLine, place: Path, backend: str) -> None:
    readable.configure(dnat={"backend": backend})
    before = _tree(place)
    done = _as_nobody("plan", *readable.options, "-o", "json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["errors"] == {}
    assert document["loadBalancers"][0]["status"] == "served"
    assert document["changes"]["hosts"]["preview"].count("+169.254.") == 1
    if backend == "auto":
        assert "table inet nodeagent" in document["changes"]["dnat"]["preview"]
    assert _tree(place) == before


@needs_root
def test_a_status_claims_no_drift_of_what_root_alone_may_read(readable: CommandLine, place: Path) -> None:
    run = place / "root"
    run.mkdir(mode=0o700)
    readable.configure(relay={"runDir": str(run)})
    done = _as_nobody("status", *readable.options, "-o", "json")
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert set(document["errors"]) == {"dnat", "relay"}
    assert set(document["changes"]) == {"addresses", "hosts"}
    assert [one["redirected"] for one in document["loadBalancers"][0]["listeners"]] == [None]
    text = _as_nobody("status", *readable.options).stdout
    assert "redirected to it: unknown\n" in text
    assert "could not determine: Relay (HAProxy), DNAT; to change: Relay addresses, Hosts file; " in text


@needs_root
def test_changing_the_node_is_refused_in_one_line(readable: CommandLine, place: Path) -> None:
    before = _tree(place)
    for command in ("apply", "cleanup"):
        options = readable.options if command == "apply" else ["--config", str(readable.config)]
        done = _as_nobody(command, *options)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "Run as root." in done.stderr
    assert _tree(place) == before


@needs_root
def test_a_cleanup_that_may_write_files_and_no_rules_changes_nothing(
    readable: CommandLine, place: Path
) -> None:
    """Without hosts lines and HAProxy, the rules that it must leave would lead to nothing."""
    readable.hosts_file.write_bytes(render(USER, ONE))
    before = _tree(place)
    nodeagent = [sys.executable, "-m", "nodeagent"]
    for command in (["cleanup", "--config", str(readable.config)], ["apply", *readable.options]):
        done = subprocess.run(
            ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--", *nodeagent, *command],
            cwd=_ROOT,
            env={"PATH": os.defpath, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert said.count("CAP_NET_ADMIN; nothing was changed") == 1, said
        assert _tree(place) == before


def _as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _AS_NOBODY.format(user=_NOBODY), *arguments],
        cwd=_ROOT,
        env={"PATH": os.defpath, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def _tree(directory: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}
