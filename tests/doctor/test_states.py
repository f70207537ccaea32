"""Each state is made for real and recognised; the doctor changes nothing in any of them."""

import json
import sys
from pathlib import Path

import pytest

from nodeagent.doctor.findings import Code
from tests.doctor.states import GOLDEN, SHOWN, STATES, Scene, State, shown
from tests.root import needs_root
from tests.testbed.node_state import read_state

pytestmark = needs_root


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_the_state_is_recognised(scene: Scene, state: State) -> None:
    with state.make(scene):
        before = read_state(scene.world.node1)
        answer = scene.agent.run("doctor", *state.options)
        assert before.differences(read_state(scene.world.node1)) == []
    assert answer.stderr == ""
    found = [code for code in Code if f"[{code.value}]" in answer.stdout]
    assert [code.value for code in found if code.check == "path"] == [state.path] * bool(state.path)
    assert answer.exit_code == state.exit_code
    assert state.words in " ".join(answer.stdout.partition("\n\n")[0].split())
    if state in SHOWN:
        assert shown(state, answer) == state.golden.read_text(encoding="utf-8"), (
            "if this is how it should read: python -m tests.doctor.states"
        )


def test_every_golden_file_belongs_to_a_state() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {state.name for state in SHOWN}


def test_without_privileges_the_status_is_the_same_and_the_rest_is_reported(scene: Scene) -> None:
    agent = scene.agent
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--"]
    objects = ["--manifests", str(agent.manifests), "--config", str(agent.config), "--node", "node1"]
    with scene.remedied():
        done = agent.host.run(
            [*bare, sys.executable, "-P", "-m", "nodeagent", "doctor", *objects, "-o", "json"],
            check=False,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["RemediedByDnat"]["status"] == "pass"
    # The connections were measured; kube-proxy's rules could not be read.
    assert any("kube-proxy's rules: " in line for line in found["DataPlaneKnown"]["evidence"])
