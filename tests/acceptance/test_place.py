from pathlib import Path

import pytest

from tests.acceptance.__main__ import main
from tests.acceptance.place import run_on_node
from tests.testbed.errors import WorldError
from tests.testbed.telling import FAILED

_WORDS = ["two words", "a'b\"c", "$HOME", "*", "", "line\nbreak", ";id"]


# Like docker and nsenter, which take the words, and like ssh, whose far shell takes one string apart.
@pytest.mark.parametrize("template", ["env NODE={node}", "sh -c 'export NODE={node}; {command}'"])
def test_a_nodes_command_arrives_word_for_word(template: str) -> None:
    script = 'printf "[%s]" "$NODE" "$@"; echo oops >&2; exit 7'
    done = run_on_node(template, "node2", ["sh", "-c", script, "sh", *_WORDS], 10)
    assert done.stdout == "".join(f"[{word}]" for word in ("node2", *_WORDS))
    assert (done.stderr, done.returncode) == ("oops\n", 7)


def test_a_node_that_is_not_reached_is_an_error_and_no_answer() -> None:
    with pytest.raises(WorldError, match=r"node1: sleep took longer than 0\.2 s"):
        run_on_node("env", "node1", ["sleep", "60"], 0.2)
    with pytest.raises(WorldError, match="node9: sh: no route to node9"):
        run_on_node("sh -c 'echo no route to {node} >&2; exit 255'", "node9", ["true"], 10)


def test_an_unusable_kubeconfig_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    required = ["--load-balancer", "192.0.2.1", "--image", "i", "--pod-image", "p", "--node", "node1"]
    required += ["--node-command", "env", "--kustomization", "daemonset"]
    assert main(["cluster", *required, "--kubeconfig", str(tmp_path / "none")]) == FAILED
    assert "kubectl delete daemonset/nodeagent" in capsys.readouterr().out
