"""Text for people can't control their terminal, and has colors only there."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from nodeagent.agent.convergence import AppliedChange, NodePass
from nodeagent.cli.text import convergence_text
from nodeagent.model.desired import Desired
from tests.cli.command_line import HOSTS_FILE, ingress, service

if TYPE_CHECKING:
    from io import FileIO

    from tests.cli.command_line import CommandLine

_ROOT = Path(__file__).parents[2]
_PENDING = 2
_HOSTILE = (
    "\x1b]0;owned\x07.example.test",
    "\x1b[2J\x1b[31mred.example.test",
    "two\nrefused  lines.example.test",
    "back\x08\x08\x08.example.test",
    "return\r.example.test",
    "\x9b31m.example.test",
    "\u202eright-to-left.example.test",
    "\x00.example.test",
)


@pytest.mark.parametrize("command", ["plan", "status"])
def test_no_colours_away_from_a_terminal(command_line: CommandLine, command: str) -> None:
    reply = command_line(command)
    assert "\x1b" not in reply.stdout + reply.stderr


def test_colours_on_a_terminal(command_line: CommandLine) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "nodeagent", "plan", *command_line.options]
    with os.fdopen(controller, "rb", buffering=0) as shown:
        with os.fdopen(terminal, "wb") as screen:
            process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=screen)
        found = b"".join(iter(lambda: _read(shown), b""))
    assert process.wait() == _PENDING
    assert click.style("Load balancers", bold=True).encode() in found


def _read(terminal: FileIO) -> bytes:
    try:
        return terminal.read(4096)
    except OSError as error:
        # With this error, Linux reports that no process writes to the terminal any more.
        if error.errno == errno.EIO:
            return b""
        raise


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_hostile_host_cannot_steer_the_terminal(command_line: CommandLine, command: str) -> None:
    command_line.write(hostile=ingress(*_HOSTILE, name="hostile"))
    _assert_harmless(command_line(command).stdout)


@pytest.mark.parametrize("command", ["plan", "status"])
@pytest.mark.parametrize("hostile", _HOSTILE)
def test_nor_can_anything_else_of_an_object(command_line: CommandLine, command: str, hostile: str) -> None:
    by_hostname = service("controller")
    by_hostname["status"]["loadBalancer"]["ingress"] = [{"hostname": hostile}]
    bad_address = service("address")
    bad_address["status"]["loadBalancer"]["ingress"] = [{"ip": hostile}]
    odd_owner = ingress("odd.example.test", name="odd")
    odd_owner["status"]["loadBalancer"]["ingress"] = [{"hostname": hostile}]
    command_line.write(
        hostname=by_hostname,
        address=bad_address,
        owner=odd_owner,
        name=service(hostile),
        ingress=ingress("x.example.test", name=hostile),
        protocol=service("protocol", ports=[{"port": 1, "protocol": hostile}]),
        cluster_ip=service("cluster-ip", clusterIP=hostile),
        unreadable={"kind": "Ingress", "metadata": {"name": hostile}, "spec": 1},
    )
    _assert_harmless(command_line(command).stdout)


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_hostname_of_a_megabyte_is_one_short_line(command_line: CommandLine, command: str) -> None:
    """Objects of controllers' own kinds can have one; the exact one is in the JSON."""
    command_line.write(long=ingress("x" * 1_000_000, name="long"))
    shown = command_line(command).stdout
    assert f" {'x' * 256}... (Ingress" in shown
    assert max(map(len, shown.splitlines())) < 500
    assert "x" * 1_000_000 in command_line(command, "-o", "json").stdout


@pytest.mark.parametrize("command", ["plan", "status"])
def test_what_is_not_served_is_shown_with_its_code(command_line: CommandLine, command: str) -> None:
    command_line.write(
        local=ingress("localhost", name="local"), plain=service("plain"), site=ingress("site.example.test")
    )
    shown = command_line(command).stdout.splitlines()
    (local,) = [line for line in shown if " localhost (" in line]
    assert local.endswith("[NeverWritten]")
    (plain,) = [line for line in shown if " ingress/plain:" in line]
    assert plain.endswith("[NotProxy]")
    assert not any(line.endswith("]") for line in shown if line.lstrip().startswith("served"))


def test_nor_can_the_hosts_file(command_line: CommandLine) -> None:
    command_line.hosts_file.write_bytes(HOSTS_FILE.encode() + b"# \x1b[31m \x9b \xff\r\n")
    _assert_harmless(command_line("plan").stdout)


def test_what_was_done_is_shown_step_by_step() -> None:
    steps = [AppliedChange("dnat", "+ one\n+ two")]
    done = NodePass(Desired(), changes=steps, errors={"hosts": "can't\nwrite"})
    assert click.unstyle(convergence_text("node1", done, "nothing")) == (
        "dnat       + one\n           + two\nHosts file failed\n  can't\n  write\n"
    )


def _assert_harmless(shown: str) -> None:
    assert shown
    bad = [character for character in shown if not (character.isprintable() or character in "\n\t")]
    assert bad == [], shown.encode()
    forged = [line for line in shown.splitlines() if line.lstrip().startswith("refused  lines")]
    assert forged == []
