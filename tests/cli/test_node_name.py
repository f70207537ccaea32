"""A node's name that is no Node's: plan, apply and status say which Nodes there are, and change nothing."""

import pytest

from tests.apiserver import ApiServer, objects
from tests.cli.command_line import HOSTS_FILE, CommandLine, Manifest

_NODES = ("worker-1", "worker-2", "worker-10", "control-plane-1", "edge", "far-away-1", "far-away-2")
_PENDING = 2


def _node(name: str, **spec: object) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def _assert_rejected(command_line: CommandLine, *arguments: str) -> None:
    reply = command_line.bare(*arguments, "--config", str(command_line.config), "--node", "wroker-1")
    assert reply.exit_code == 1
    assert reply.stdout == ""
    assert reply.stderr.startswith("nodeagent: no Node is called 'wroker-1'; nothing was changed. ")
    assert "The Nodes are worker-1, " in reply.stderr, "the most similar one comes first"
    assert reply.stderr.endswith(" and 2 more. Pass the name of this machine's Node: --node NAME\n")
    assert not command_line.run_directory.exists()
    assert command_line.hosts_file.read_text(encoding="ascii") == HOSTS_FILE


@pytest.mark.parametrize("command", ["plan", "apply", "status"])
def test_a_mistyped_name_is_an_error_that_names_the_nodes(
    command_line: CommandLine, command: str, api: ApiServer
) -> None:
    api.store.create_many([objects.node(name) for name in _NODES])
    kubeconfig = api.write_kubeconfig(command_line.manifests.parent / "kubeconfig")
    _assert_rejected(command_line, command, "--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("command", ["plan", "status"])
def test_on_another_machine_the_last_line_says_so(command_line: CommandLine, command: str) -> None:
    reply = command_line(command)
    assert reply.exit_code in {1, _PENDING}  # 1: an ordinary user may not read all of the state
    assert reply.words.endswith("; no Node was read, so whether this machine is one is unknown")
    command_line.write(node=_node("node1") | _ELSEWHERE)
    assert command_line(command).words.endswith(
        "; this machine is not that node: none of Node node1's addresses (192.0.2.250) is on it"
    )


_ELSEWHERE = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.250"}]}}


def _assert_refused(command_line: CommandLine, *arguments: str) -> None:
    reply = command_line.bare(*arguments, "--config", str(command_line.config), "--node", "node1")
    assert reply.exit_code == 1
    assert "none of Node node1's addresses (192.0.2.250) is on it; nothing was changed. " in reply.stderr
    assert "--any-machine" in reply.stderr
    assert command_line.hosts_file.read_text(encoding="ascii") == HOSTS_FILE


@pytest.mark.usefixtures("logging_as_it_was")
def test_run_by_hand_refuses_another_machine(command_line: CommandLine, api: ApiServer) -> None:
    api.store.create(objects.node("node1") | _ELSEWHERE)
    kubeconfig = api.write_kubeconfig(command_line.manifests.parent / "kubeconfig")
    _assert_refused(command_line, "run", "--kubeconfig", str(kubeconfig))


@pytest.mark.usefixtures("without_a_table")
def test_a_flag_overrides_that(command_line: CommandLine) -> None:
    command_line.configure(loadBalancers={"detect": False, "services": []})
    command_line.write(node=_node("node1") | _ELSEWHERE)
    reply = command_line("apply", "--any-machine")
    assert "--any-machine" not in reply.stderr
    assert "node node1: " in reply.stdout, "it was applied: nothing is to be served"


def test_the_doctor_rejects_a_mistyped_name_that_was_given(command_line: CommandLine) -> None:
    command_line.write(nodes={"kind": "List", "items": [_node(name) for name in _NODES]})
    _assert_rejected(command_line, "doctor", "--manifests", str(command_line.manifests))
    reply = command_line.bare("doctor", "--manifests", str(command_line.manifests))
    assert "only manifests were read: connections, data plane and names" in reply.words


def test_a_node_that_can_not_be_read_exists_all_the_same(command_line: CommandLine) -> None:
    command_line.write(nodes={"kind": "List", "items": [_node("node1", podCIDRs=7), _node("node2")]})
    reply = command_line("plan")
    assert reply.exit_code == 1, reply
    assert "could not determine: 1 object is not usable; to change" in reply.words
    assert "Node node1" in reply.stdout
