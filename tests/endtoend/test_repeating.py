"""Each command may be run again at any time: it does what is left to do, and no more."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
import yaml

from nodeagent.observe.status import status_path
from tests.apiserver import objects
from tests.endtoend.matrix import in_two
from tests.endtoend.trying import NAMED, assert_cut, assert_served, configure
from tests.testbed import addresses
from tests.testbed.addresses import bracketed
from tests.testbed.agent import RUN_DIRECTORY, Agent
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.services import INGRESS_SERVICE, ServicePort
from tests.testbed.world import World

pytestmark = in_two

_NOTHING_TO_DO = "node node1: in sync, nothing to do\n"
_NAME = "second.example.test"
_SERVICE = replace(
    INGRESS_SERVICE,
    namespace="second",
    cluster_ips=(IPv4Address("10.96.0.20"), IPv6Address("fd00:10:96::20")),
    load_balancer_ips=(IPv4Address("203.0.113.20"), IPv6Address("2001:db8:3::20")),
    ports=(ServicePort("http", 80, 31080, 80),),
)


@pytest.fixture
def second_service(world: World, agent: Agent) -> Iterator[Path]:
    """A second LoadBalancer Service with an Ingress behind it: yields the manifest, which makes both."""
    world.node1.kube_proxy.add(_SERVICE)
    known = _SERVICE.within(world.families)
    addresses = [str(each) for each in known.load_balancer_ips]
    service = objects.service(
        known.name,
        known.namespace,
        kind="LoadBalancer",
        cluster_ips=[str(each) for each in known.cluster_ips],
        ports=[objects.Port(each.name, each.port, each.port) for each in known.ports],
        addresses=addresses,
    )
    ingress = objects.ingress("web", known.namespace, hosts=[_NAME], addresses=addresses)
    file = agent.manifests / "second.yaml"
    file.write_text(yaml.safe_dump_all([service, ingress]), encoding="utf-8")
    listed = [{"namespace": each.namespace, "name": each.name} for each in (INGRESS_SERVICE, _SERVICE)]
    configure(agent, loadBalancers={"services": listed})
    yield file
    world.node1.kube_proxy.remove(_SERVICE.key)


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


def test_a_load_balancer_that_is_gone_is_withdrawn(world: World, agent: Agent, second_service: Path) -> None:
    """And without any, nothing is left."""
    before = read_state(agent.host)
    manifest = second_service.read_text(encoding="utf-8")
    second_service.unlink()
    assert agent.apply().exit_code == 0
    without = read_state(agent.host)
    second_service.write_text(manifest, encoding="utf-8")
    assert agent.apply().exit_code == 0
    by_address = [f"http://{bracketed(ip)}/" for ip in _SERVICE.within(world.families).load_balancer_ips]
    for host in (world.node1, world.pod1):
        assert_served(world, host, *by_address)
    assert_served(world, world.node1, f"http://{_NAME}/")
    assert _NAME in world.node1.read_hosts().decode()
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
