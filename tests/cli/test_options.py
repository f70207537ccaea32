import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodeagent import __version__
from nodeagent.cli.main import nodeagent
from tests.cli.command_line import NODE, CommandLine


def _all_below(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _all_below(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


_COMMANDS = dict(_all_below(nodeagent))


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(command_line: CommandLine, command: str, option: str) -> None:
    reply = command_line.bare(*command.split(), option)
    assert reply.exit_code == 0
    assert reply.stdout.startswith(f"Usage: nodeagent {command} [OPTIONS]")
    assert "Exit code 0" in re.sub(r"\s+", " ", reply.stdout)
    assert reply.stderr == ""


def test_an_error_names_what_was_typed(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = command_line("plan", "--output", "yam").stderr
    assert "Invalid value for '--output' / '-o': 'yam'" in stderr
    assert "NODEAGENT_OUTPUT" not in stderr
    monkeypatch.setenv("NODEAGENT_OUTPUT", "yam")
    assert "Invalid value for 'NODEAGENT_OUTPUT': 'yam'" in command_line("plan").stderr


@pytest.mark.parametrize("follows", ["--manifests", "--config=nodeagent.yaml", "-o", "--help"])
def test_an_option_is_not_the_value_of_the_one_before_it(command_line: CommandLine, follows: str) -> None:
    reply = command_line("plan", "--node", follows)
    assert reply.exit_code == 1
    assert f"'--node' needs a value; it is followed by '{follows.partition('=')[0]}'." in reply.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "301", "soon"])
def test_a_time_limit_is_a_number_of_seconds(command_line: CommandLine, seconds: str) -> None:
    reply = command_line.bare("fleet", "--timeout", seconds)
    assert reply.exit_code == 1
    assert "Invalid value for '--timeout': must be a number of seconds from 1 to 300." in reply.stderr


@pytest.mark.parametrize("group", [(), ("coredns",)])
def test_no_command_is_cut_off_in_a_list_at_80_columns(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, group: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, commands = command_line.bare(*group, "--help").stdout.split("\nCommands:\n")
    assert "..." not in commands


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_help_ends_with_an_example_that_is_valid(command: str) -> None:
    example = (_COMMANDS[command].epilog or "").removeprefix("Example: ")
    assert f"{example} ".startswith(f"nodeagent {command} ")
    words = shlex.split(example)[1 + len(command.split()) :]
    parent = nodeagent.make_context("nodeagent", [command])
    assert _COMMANDS[command].make_context(command, words, parent).params


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_option_has_a_variable_and_help(command: str) -> None:
    for option in _COMMANDS[command].params:
        if isinstance(option, click.Argument):
            continue
        assert isinstance(option, click.Option)
        name = max(option.opts, key=len)
        assert option.envvar == "NODEAGENT_" + name.removeprefix("--").upper().replace("-", "_")
        assert option.show_envvar
        assert option.help


def test_manifests_are_read_from_standard_input(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(command_line.manifests.iterdir())
    text = b"\n---\n".join(file.read_bytes() for file in files)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    expected = command_line("plan", "-o", "json")
    assert command_line("plan", "-o", "json", "--manifests", "-") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: [b")))
    assert "standard input:2: not YAML" in command_line("plan", "--manifests", "-").stdout


def test_variables_replace_options(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = command_line("plan", "--output", "json")
    monkeypatch.setenv("NODEAGENT_MANIFESTS", str(command_line.manifests))
    monkeypatch.setenv("NODEAGENT_CONFIG", str(command_line.config))
    monkeypatch.setenv("NODEAGENT_NODE", NODE)
    monkeypatch.setenv("NODEAGENT_OUTPUT", "json")
    assert command_line.bare("plan") == expected
    monkeypatch.setenv("NODEAGENT_NODE", "another")
    assert command_line.bare("plan", "--node", NODE) == expected, "an option goes before its variable"


def test_no_command_shows_the_help(command_line: CommandLine) -> None:
    reply = command_line.bare()
    assert reply.exit_code == 1
    assert "Usage: nodeagent [OPTIONS] COMMAND" in reply.stdout + reply.stderr


_BIN = Path(sys.executable).parent


def _said(program: str, *arguments: str, **variables: str) -> str:
    env = os.environ | variables
    done = subprocess.run(
        [_BIN / program, *arguments], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def _complete(*words: str) -> list[str]:
    """Return what the shell would offer for the last word."""
    line = {"COMP_WORDS": " ".join(["nodeagent", *words]), "COMP_CWORD": str(len(words))}
    said = _said("nodeagent", _NODEAGENT_COMPLETE="bash_complete", **line)
    return [offer.partition(",")[2] for offer in said.splitlines()]


def test_commands_options_and_values_are_completed() -> None:
    assert _complete("fl") == ["fleet"]
    assert "--timeout" in _complete("fleet", "--")
    assert _complete("fleet", "-o", "j") == ["json"]


def test_kubectl_finds_the_plugin() -> None:
    assert _said("kubectl-nodeagent", "--version") == f"nodeagent {__version__}\n"
