"""What plan and status report: `-o json` is what docs/schema says it is; the text says the same."""

import click
import pytest
from jsonschema import Draft202012Validator

from nodeagent.agent.comparison import Comparison
from nodeagent.agent.convergence import NodePass
from nodeagent.cli.report import SCHEMA_VERSION, Document, convergence_lines, report, report_lines
from nodeagent.cli.terminal import terminal_text
from nodeagent.components.component import ComponentName
from nodeagent.components.node import Applied
from nodeagent.model.desired import Desired
from nodeagent.observe.status import RelayStatus
from release.schemas import schema_of
from tests.cli.command_line import (
    ADDRESS,
    HOST,
    HOSTS_FILE,
    NODE,
    PORT,
    CommandLine,
    ingress,
    needs_nft,
    service,
)
from tests.root import needs_root

_VALIDATOR = Draft202012Validator(schema_of(Document))
"""Of what docs/schema publishes, as tests/release shows."""


@pytest.mark.parametrize("backend", ["none", "auto"])
@pytest.mark.parametrize("command", ["plan", "status"])
def test_every_answer_is_valid(command_line: CommandLine, command: str, backend: str) -> None:
    command_line.configure(dnat={"backend": backend})
    command_line.write(
        other=service("other"),
        hostile=ingress("a\nb", "\x1b[31m", "*.example.test", "localhost", name="hostile"),
        empty=ingress(name="empty"),
    )
    (command_line.manifests / "broken.yaml").write_text("a: [b", encoding="ascii")
    reply = command_line(command, "-o", "json")
    _VALIDATOR.validate(reply.document)
    assert reply.document["schemaVersion"] == SCHEMA_VERSION
    assert reply.document["kind"] == command.capitalize()
    assert reply.document["node"] == NODE


def test_an_error_is_valid_too(command_line: CommandLine) -> None:
    command_line.hosts_file.unlink()
    command_line.hosts_file.mkdir()
    reply = command_line("plan", "-o", "json")
    assert reply.exit_code == 1
    _VALIDATOR.validate(reply.document)
    assert set(reply.document["errors"]) == {"hosts"}
    assert reply.document["inSync"] is False


def test_a_plan_shows_all_that_would_change(command_line: CommandLine) -> None:
    document = command_line("plan", "-o", "json").document
    (load_balancer,) = document["loadBalancers"]
    assert load_balancer["status"] == "served"
    assert load_balancer["addresses"] == [ADDRESS]
    assert load_balancer["ports"] == [PORT]
    assert load_balancer["listeners"] is None
    (relay,) = load_balancer["relayAddresses"]
    (name,) = document["names"]
    assert (name["name"], name["status"], name["written"]) == (HOST, "served", False)
    changes = document["changes"]
    assert any(line.startswith(f"+ {relay} ") for line in changes["addresses"]["add"])
    assert any(f"{relay}:{PORT}" in line and f"10.96.0.10:{PORT}" in line for line in changes["relay"]["add"])
    assert changes["hosts"]["remove"] == []
    assert f"+{relay}\t{HOST}\n" in changes["hosts"]["preview"]
    assert any("169.254.66.0/24" in line for line in changes["dnat"]["add"])


def test_two_plans_are_the_same_to_the_byte(command_line: CommandLine) -> None:
    assert command_line("plan", "-o", "json").stdout == command_line("plan", "-o", "json").stdout
    assert command_line.hosts_file.read_text(encoding="ascii") == HOSTS_FILE
    assert not command_line.run_directory.exists()


@pytest.mark.parametrize("command", ["plan", "status"])
def test_what_is_not_served_is_shown_with_its_code(command_line: CommandLine, command: str) -> None:
    command_line.write(
        local=ingress("localhost", "*.example.test", name="local"),
        plain=service("plain"),
        site=ingress("site.example.test"),
    )
    document = command_line(command, "-o", "json").document
    assert {name["name"]: name["code"] for name in document["names"]} == {
        "localhost": "NeverWritten",
        "*.example.test": "Wildcard",
        HOST: "Allowed",
    }
    shown = command_line(command).words
    for code, count in {"NeverWritten": 1, "Wildcard": 1, "NotProxy": 1, "Allowed": 0, "Listed": 0}.items():
        assert shown.count(f"[{code}]") == count, "what is served needs no code"


@needs_root
def test_before_it_is_applied_a_load_balancer_is_to_be_served(command_line: CommandLine) -> None:
    shown = command_line("status").stdout
    assert f"  pending  ingress/controller: {ADDRESS} -> " in shown
    assert f"  pending  {HOST} (Ingress default/web)" in shown
    assert "does not answer" not in shown


@needs_nft
def test_the_skeleton_of_a_transaction_is_in_the_json(command_line: CommandLine) -> None:
    assert "  + guard" in command_line("plan").stdout
    document = command_line("plan", "-o", "json").document
    assert "hook prerouting" in document["changes"]["dnat"]["preview"]


def test_what_a_hosts_file_holds_can_not_steer_the_terminal(command_line: CommandLine) -> None:
    command_line.hosts_file.write_bytes(HOSTS_FILE.encode() + b"# \x1b[31m \x9b \xff\r\n")
    shown = command_line("plan").stdout
    assert r"\x1b[31m" in shown
    assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_what_was_done_is_shown_step_by_step() -> None:
    steps: list[tuple[ComponentName, Applied]] = [("dnat", Applied("+ one\n+ two"))]
    done = NodePass(Desired(), changes=steps, errors={"hosts": "can't\nwrite"})
    assert click.unstyle(terminal_text(convergence_lines("node1", done, "done", "apply"))) == (
        "dnat       + one\n           + two\n\nHosts file failed\n  can't\n  write\n\n"
        "node node1: not everything was done: fix what failed (Hosts file), then run apply again\n"
    )


def test_status_names_the_relay_that_serves() -> None:
    comparison = Comparison({}, {}, relay=RelayStatus("nodeagent-relay-x7k2p", "3.0.11"))
    found = report("Status", NODE, Desired(), comparison, {})
    shown = click.unstyle(terminal_text(report_lines(found)))
    assert "HAProxy 3.0.11 of pod nodeagent-relay-x7k2p serves" in shown
