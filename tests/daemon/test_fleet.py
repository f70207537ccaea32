"""`nodeagent fleet` asks a real agent: exec runs real programs on its node."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodeagent import __version__
from nodeagent.agent.status_file import IN_POD, AgentStatus, parse_status
from tests.apiserver import faults
from tests.apiserver.containers import Ended
from tests.daemon.agents import Agents
from tests.daemon.cluster_api import ClusterApi
from tests.fleet.simulated import Fleet
from tests.testbed.fixtures import needs_root
from tests.testbed.namespaces import Host

pytestmark = needs_root

_ROOT = Path(__file__).parents[2]


def _pod_on(api: ClusterApi, node: Host) -> None:
    """Let the API server have a pod of nodeagent on the node, whose container is the node itself."""

    def program(command: Sequence[str]) -> Ended:
        done = node.run(list(command), check=False)
        return Ended(done.returncode, done.stdout.encode(), done.stderr.encode())

    fleet = Fleet(api, 0)
    fleet.set_pod(node.name, program)
    fleet.want(1)


def _asked(agents: Agents, kubeconfig: Path) -> tuple[int, dict[str, Any]]:
    done = agents.node.run(
        [sys.executable, "-P", "-m", "nodeagent", "fleet", "--kubeconfig", kubeconfig, "-o", "json"],
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(_ROOT)},
    )
    assert done.stderr == ""
    (node,) = json.loads(done.stdout)["nodes"]
    return done.returncode, node


def _status(node: Host) -> AgentStatus | None:
    """Return what its file says, as an exec of `cat` would."""
    done = node.run(["cat", IN_POD], check=False)
    return parse_status(done.stdout.encode()) if done.returncode == 0 else None


def _failed(status: AgentStatus) -> set[str]:
    return {name for name, component in status.components.items() if component.state == "failed"}


def test_a_real_agent_is_asked_and_its_document_goes_with_it(agents: Agents, api: ClusterApi) -> None:
    # The other agents of these tests find the API server as in a pod.
    agent = agents.start_ready("--kubeconfig", str(api.kubeconfig), "--status-file", str(IN_POD))
    _pod_on(api, agents.node)

    def in_sync() -> bool:
        status = _status(agents.node)
        return status is not None and status.last_sync_seconds is not None and not _failed(status)

    def api_failed() -> bool:
        status = _status(agents.node)
        return status is not None and _failed(status) == {"api"}

    # The document is awaited, and the command is asked once about each state: a start of it costs a second.
    agent.await_that(in_sync, "the node in sync")
    code, node = _asked(agents, api.kubeconfig)
    assert (code, node["state"]) == (0, "in-sync")
    assert node["version"] == __version__
    assert node["loadBalancers"]["served"] >= 1
    assert node["hostnames"]["served"] >= 1
    assert 0 <= node["lastSyncSeconds"] < 120

    # What it can't do is reported within seconds, with the component and the reason.
    broken = api.faults.add(faults.Answer(500), path="*/services", times=None)
    api.end_watches()
    agent.await_that(api_failed, "the trouble in the document")
    code, node = _asked(agents, api.kubeconfig)
    assert code == 2
    assert node["state"] == "drifted"
    assert node["components"] == ["api"]
    assert "500" in node["reason"]
    api.faults.remove(broken)
    agent.await_that(in_sync, "the node in sync again")
    code, node = _asked(agents, api.kubeconfig)
    assert (code, node["state"]) == (0, "in-sync")

    agent.stop()
    assert _status(agents.node) is None
