"""Each command may be run again at any time: it does what is left to do, and no more."""

import re
import sys
from pathlib import Path

from nodeagent.agent.status_file import status_path
from tests.endtoend.asking import NAMED, assert_cut, assert_served
from tests.endtoend.matrix import in_two
from tests.endtoend.second_service import SECOND_NAME, SECOND_SERVICE
from tests.testbed import addresses
from tests.testbed.addresses import bracketed
from tests.testbed.agent import RUN_DIRECTORY, Agent
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.world import World

pytestmark = in_two

_NOTHING_TO_DO = "node node1: in sync, nothing to do\n"


def test_plan_status_and_a_second_apply_agree_with_the_first(world: World, agent: Agent) -> None:
    assert agent.plan().exit_code == 2
    assert agent.status().exit_code == 2
    before = read_state(agent.host)
    assert agent.plan("-o", "json").document["inSync"] is False
    assert before.differences(read_state(agent.host)) == []
    assert agent.apply().exit_code == 0
    after_first = read_state(agent.host)
    processes = living_processes(agent.host, "haproxy")
    for command in ("plan", "status"):
        answer = agent.run(command)
        assert answer.exit_code == 0, answer
        assert answer.stdout.endswith(_NOTHING_TO_DO)
    answer = agent.apply()
    assert (answer.exit_code, answer.text) == (0, _NOTHING_TO_DO)
    assert after_first.differences(read_state(agent.host)) == []
    assert living_processes(agent.host, "haproxy") == processes
    document = agent.status("-o", "json").document
    assert document["inSync"] is True
    assert {name["name"]: name["written"] for name in document["names"]} == {
        addresses.REGISTRY: True,
        addresses.SITE: True,
    }
    answers = [listener["answers"] for listener in document["loadBalancers"][0]["listeners"]]
    assert answers == [True] * 3 * len(world.families)


def test_cleanup_needs_no_configuration_names_what_it_removes_and_may_be_repeated(agent: Agent) -> None:
    """HAProxy, launched with another configuration, is stopped, and a killed agent's status is removed."""
    assert agent.apply().exit_code == 0
    agent.host.run(["install", "-D", "/dev/null", status_path(RUN_DIRECTORY)])
    first = agent.host.run(
        [sys.executable, "-P", "-m", "nodeagent", "cleanup"],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "stop HAProxy: nodeagent launched it" in first.stdout
    assert "! repair" not in first.stdout
    for part in ("hosts", "dnat", "relay", "addresses"):
        assert re.search(rf"^{part} +\S", first.stdout, re.MULTILINE), part
    assert re.search(r": [24] lines removed", first.stdout)
    assert living_processes(agent.host, "haproxy") == []
    assert agent.host.run(["ls", "-A", RUN_DIRECTORY], check=False).stdout == ""
    second = agent.cleanup()
    assert (second.exit_code, second.text) == (0, "node node1: nothing of nodeagent is left here\n")


def test_a_load_balancer_that_is_gone_is_withdrawn_whole(
    world: World, agent: Agent, second_service: Path
) -> None:
    """And without any, nothing is left."""
    before = read_state(agent.host)
    manifest = second_service.read_text(encoding="utf-8")
    second_service.unlink()
    assert agent.apply().exit_code == 0
    without = read_state(agent.host)
    second_service.write_text(manifest, encoding="utf-8")
    assert agent.apply().exit_code == 0
    by_address = [
        f"http://{bracketed(ip)}/" for ip in SECOND_SERVICE.within(world.families).load_balancer_ips
    ]
    for host in (world.node1, world.pod1):
        assert_served(world, host, *by_address)
    assert_served(world, world.node1, f"http://{SECOND_NAME}/")
    assert SECOND_NAME in world.node1.read_hosts().decode()
    second_service.unlink()
    answer = agent.apply()
    assert answer.exit_code == 0, answer
    assert without.differences(read_state(agent.host)) == []
    assert all(f"{url[7:-1]}:80 -> " in answer.stdout for url in by_address), answer
    assert_cut(world, world.node1, *by_address)
    assert_served(world, world.node1, NAMED[0])
    (agent.manifests / "service.yaml").unlink()
    assert agent.apply().exit_code == 0
    assert before.differences(read_state(agent.host)) == []
    assert living_processes(agent.host, "haproxy") == []
    assert agent.host.run(["find", RUN_DIRECTORY], check=False).stdout == ""
