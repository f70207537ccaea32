"""Bad input costs what is bad, one line of reason each; only where nothing sensible is left, exit code 1."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from tests.cases import cases_of
from tests.cli.command_line import HOST, HOSTS_FILE, CommandLine, service
from tests.root import needs_root
from tests.testbed.processes import children

_PENDING = 2
_INCOMPLETE = 1
"""What could be read is shown; whether more is to do is unknown."""


def test_unusable_input_is_no_reason_to_apply_anything(command_line: CommandLine) -> None:
    (command_line.manifests / "broken.yaml").write_text("a: [b", encoding="ascii")
    for command in ("plan", "status"):
        assert "nodeagent apply" not in command_line(command).stdout


def test_a_file_that_is_too_large_hides_no_other(command_line: CommandLine) -> None:
    large = command_line.manifests / "large.yaml"
    large.touch()
    os.truncate(large, 2**40)
    reply = command_line("plan")
    assert reply.exit_code == _INCOMPLETE
    assert f"{large}: larger than 67108864 bytes: divide it" in reply.words
    assert _served(command_line) == {HOST}
    os.truncate(command_line.config, 2**40)
    assert "more than 1048576 characters" in command_line("plan").stderr


@pytest.mark.usefixtures("without_a_table")
@pytest.mark.parametrize("command", ["plan", "apply", "status", "doctor"])
@pytest.mark.parametrize("content", [b"a: [b", b"\xff\x00\xfe", b"kind: [Service"])
def test_a_directory_that_holds_only_what_can_not_be_read_is_not_in_sync(
    command_line: CommandLine, command: str, content: bytes
) -> None:
    for file in command_line.manifests.iterdir():
        file.unlink()
    (command_line.manifests / "broken.yaml").write_bytes(content)
    reply = command_line(command)
    assert reply.exit_code == _INCOMPLETE
    assert "broken.yaml" in reply.stdout
    assert "could not determine" in reply.stdout
    assert "in sync" not in reply.stdout
    assert "codec" not in reply.stdout


_LAUGHS = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 8)}]\n" for a, b in pairwise("abcdefghijk")
)
_MERGES = "a: &a {x: 1}\n" + "".join(
    f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 8)}]}}\n" for a, b in pairwise("abcdefgh")
)


_ATTACKS: dict[str, str] = cases_of(__file__, "cases.yaml")["attacks"]
_LARGE = {"LAUGHS": _LAUGHS, "MERGES": _MERGES, "DEEP": "[" * 100_000}
_LARGE |= {"DIGITS": "9" * 5000, "SIXTIES": "9:" * 200_000 + "9"}


@pytest.mark.parametrize("text", _ATTACKS.values(), ids=_ATTACKS)
def test_an_attack_by_yaml_costs_its_own_document(command_line: CommandLine, text: str) -> None:
    for word, written in _LARGE.items():
        text = text.replace(word, written)
    (command_line.manifests / "attack.yaml").write_text(text, encoding="ascii")
    began = time.process_time()
    reply = command_line("plan")
    assert reply.exit_code == (_INCOMPLETE if "could not determine" in reply.stdout else _PENDING)
    assert time.process_time() - began < 3
    assert _served(command_line) == {HOST}


def test_an_output_that_does_not_know_a_character_gets_its_escape(command_line: CommandLine) -> None:
    command_line.hosts_file.write_text(f"{HOSTS_FILE}# f\u00fcr \u65e5\u672c\n", encoding="utf-8")
    done = _process("plan", command_line, stdout=subprocess.PIPE, encoding="latin-1")
    assert (done.returncode, done.stderr) == (_PENDING, b"")
    assert HOST.encode() in done.stdout
    done = _process("plan", command_line, "-o", "json", stdout=subprocess.PIPE, encoding="latin-1")
    assert "f\u00fcr \u65e5\u672c" in json.loads(done.stdout)["changes"]["hosts"]["preview"]


def test_a_full_disk_is_an_error_of_one_line(command_line: CommandLine) -> None:
    for options in ([], ["-o", "json"], ["--help"]):
        with Path("/dev/full").open("wb") as full:
            done = _process("plan", command_line, *options, stdout=full, encoding="utf-8")
        assert done.returncode == 1
        assert done.stderr == b"nodeagent: the output could not be written: No space left on device\n"


def _process(
    command: str, command_line: CommandLine, *options: str, stdout: int | IO[bytes], encoding: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "nodeagent", command, *command_line.options, *options],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )


@pytest.mark.usefixtures("without_a_table")
@pytest.mark.parametrize("left", ["status/of-another", "status/agent/of-another"])
def test_a_cleanup_keeps_another_programs_files_and_lines(command_line: CommandLine, left: str) -> None:
    file = command_line.run_directory / left
    file.parent.mkdir(parents=True)
    file.touch()
    command_line.hosts_file.write_text(of_others := "10.43.1.9\ta.example.com # Added by hairpin-proxy\n")
    assert command_line("cleanup").exit_code == 0
    assert file.exists()
    assert command_line.hosts_file.read_text() == of_others


@pytest.mark.parametrize("command", [["run"], ["coredns", "run"]])
def test_a_daemon_that_starts_is_not_ended_by_a_reload_and_logs_what_ends_it(
    tmp_path: Path, command: list[str]
) -> None:
    config = tmp_path / "nodeagent.yaml"
    os.mkfifo(config)
    program = [sys.executable, "-m", "nodeagent", *command, "--config", str(config), "--log-format", "json"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]) as started:
        with config.open("w", encoding="ascii") as file:  # from when on it reads its configuration
            started.send_signal(signal.SIGHUP)
            file.write("hosts: 7\n")
        (line,) = started.communicate(timeout=30)[1].splitlines()
        assert "hosts: must be a mapping" in json.loads(line)["reason"]
    assert started.returncode == 1


@needs_root
def test_a_signal_that_ends_process_1_waits_until_it_has_started(tmp_path: Path) -> None:
    """The kernel drops what process 1 of a container neither blocks nor handles."""
    config = tmp_path / "nodeagent.yaml"
    os.mkfifo(config)
    apart = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "nodeagent", "run"]
    root = Path(__file__).parents[2]
    with (
        subprocess.Popen([*apart, "--config", config], stderr=subprocess.DEVNULL, cwd=root) as started,
        config.open("w", encoding="ascii") as file,
    ):
        (first,) = children(started.pid)
        os.kill(first, signal.SIGTERM)
        status = Path(f"/proc/{first}/status").read_text(encoding="ascii")
        assert int(re.findall(r"^ShdPnd:(.+)$", status, re.MULTILINE)[0], 16) == 1 << signal.SIGTERM - 1
        file.write("hosts: 7\n")
    assert started.returncode == 1


def test_nothing_to_serve_is_no_error(command_line: CommandLine) -> None:
    command_line.write(service=service(type="ClusterIP"))
    reply = command_line("plan")
    assert reply.exit_code == 0
    assert "node node1: nothing to do here; no Node was read" in reply.stdout


def _served(command_line: CommandLine) -> set[str]:
    names = command_line("plan", "-o", "json").document["names"]
    return {name["name"] for name in names if name["status"] == "served"}


def test_an_object_of_a_tenants_that_cant_be_used_is_named_and_changes_no_exit_code(
    command_line: CommandLine,
) -> None:
    """One unreadable file may hide anything, and a Service that no API server takes a load balancer."""
    assert command_line("plan").exit_code == _PENDING
    gateway = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "x"}}
    command_line.write(tenant={**gateway, "spec": 7})
    reply = command_line("plan")
    assert reply.exit_code == _PENDING
    assert "Not usable" in reply.stdout
    command_line.write(tenant={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": 7})
    assert command_line("plan").exit_code == _INCOMPLETE
    command_line.write(tenant={**gateway, "spec": 7})
    (command_line.manifests / "torn.yaml").write_text("a: [b", encoding="ascii")
    assert command_line("plan").exit_code == _INCOMPLETE
