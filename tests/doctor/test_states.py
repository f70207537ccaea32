"""Each state is made for real and recognised; the doctor changes nothing in any of them.

`WRITE_GOLDEN=1 pytest tests/doctor/test_states.py` rewrites golden/ (as root): read its diff.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.doctor.findings import Code
from tests.doctor.states import GOLDEN, SHOWN, STATES, Scene, State, shown, stage
from tests.root import needs_root
from tests.testbed.addresses import Stack
from tests.testbed.kube_proxy import KubeProxyKind
from tests.testbed.node_state import read_state
from tests.testbed.world import World

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
    if state in SHOWN and os.environ.get("WRITE_GOLDEN"):
        state.golden.write_text(shown(state, answer), encoding="utf-8")
    if state in SHOWN:
        assert shown(state, answer) == state.golden.read_text(encoding="utf-8")


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


@pytest.fixture(params=[("iptables-nft", 6), ("iptables-legacy", "dual")], ids=str)
def iptables_world(as_root: None, request: pytest.FixtureRequest) -> Iterator[World]:
    """One of each shape of its rules."""
    chosen: tuple[KubeProxyKind, Stack] = request.param
    with World(*chosen) as standing:
        yield standing


def test_in_iptables_mode_too_kube_proxy_and_the_short_circuit_are_read_from_the_kernel(
    iptables_world: World, tmp_path: Path
) -> None:
    world, scene = iptables_world, stage(iptables_world, tmp_path)
    broken = scene.agent.run("doctor")
    assert broken.exit_code == 2, broken
    assert "kube-proxy, mode iptables" in broken.stdout
    assert f"- chain KUBE-SERVICES of {world.kind}\n" in broken.stdout
    for address in world.service.load_balancer_ips:
        assert f"the kernel's Service rules contain {address}\n" in broken.stdout
    assert "[ShortCircuitedAndCut]" in broken.stdout
    with scene.remedied():
        remedied = scene.agent.run("doctor")
        assert remedied.exit_code == 0, remedied
        assert "[RemediedByDnat]" in remedied.stdout
        assert "[DataPlaneKnown]" in remedied.stdout
