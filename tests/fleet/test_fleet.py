"""`nodeagent fleet` against the simulated API: each kind of row, their order, exit codes, 500 nodes."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from nodeagent.cli.cluster import FleetDocument
from nodeagent.fleet import read_own
from nodeagent.observe.status import DecisionCounts
from release.schemas import schema_of
from tests.apiserver import ApiServer, Rule, faults, objects
from tests.apiserver.containers import Ended
from tests.cases import cases_of
from tests.cli.command_line import Ask
from tests.fleet.simulated import NAMESPACE, UPTIME, Fleet, answering, failing, status

CASES = cases_of(__file__, "cases.yaml")
_RIGHTS = [
    Rule([""], ["nodes"], ["list"]),
    Rule(["apps"], ["daemonsets"], ["get"], ["nodeagent"], "nodeagent"),
    Rule([""], ["pods"], ["list"], namespace="nodeagent"),
    Rule([""], ["pods/exec"], ["get", "create"], namespace="nodeagent"),
]


def _nodes(ask: Ask, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    reply = ask("fleet", "-o", "json", *options)
    assert reply.stderr == ""
    Draft202012Validator(schema_of(FleetDocument)).validate(reply.document)
    return reply.exit_code, {node["node"]: node for node in reply.document["nodes"]}


def test_a_fleet_in_sync_with_no_more_rights_than_are_documented(api: ApiServer, ask: Ask) -> None:
    Fleet(api, 3)
    api.access.allow_only(_RIGHTS)
    code, nodes = _nodes(ask)
    assert code == 0
    assert [node["state"] for node in nodes.values()] == ["in-sync"] * 3
    assert nodes["node000"]["loadBalancers"] == {"served": 3, "skipped": 1, "refused": 0}
    assert nodes["node000"]["lastSyncSeconds"] == pytest.approx(42)
    assert api.traffic.seen("get", "*/exec"), "asked by exec"
    text = ask("fleet").stdout
    assert "3 of 3" in text.splitlines()[-1]
    assert "42s" in text


@pytest.mark.parametrize("missing", range(len(_RIGHTS)))
def test_a_right_that_is_missing_is_named(api: ApiServer, ask: Ask, missing: int) -> None:
    Fleet(api, 3)
    api.access.allow_only([rule for number, rule in enumerate(_RIGHTS) if number != missing])
    reply = ask("fleet")
    assert reply.exit_code == 1
    assert reply.stdout == ""
    resource = _RIGHTS[missing].resources[0]
    assert "403" in reply.stderr
    assert f'resources: ["{resource}"]' in reply.stderr
    assert len(reply.stderr.splitlines()) == 1


def test_an_agent_that_answers_with_megabytes_costs_one_short_row(api: ApiServer, ask: Ask) -> None:
    """An intruder's in its container, or a program that ends with a long error."""
    fleet = Fleet(api, 1)
    fleet.add("long", answering(status("long", components=failing("x" * 3_000_000))))
    fleet.add("loud", lambda _: Ended(1, stderr=b"y" * 3_000_000))
    for name, size in (("full", 1 << 18), ("fuller", (1 << 18) + 1)):
        text = msgspec.json.encode(status(name))
        fleet.add(name, answering(text.ljust(size - len(f"{UPTIME} 400000.00\n"))))
    _, nodes = _nodes(ask)
    assert {name: node["state"] for name, node in nodes.items() if name != "node000"} == {
        "long": "unreadable",
        "loud": "unreadable",
        "full": "in-sync",
        "fuller": "unreadable",
    }
    assert nodes["loud"]["reason"].count("y") == 600
    assert all(len(node["reason"]) < 1000 for node in nodes.values())


def test_the_worst_come_first_each_with_its_reason(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 2)
    fleet.add("broken", answering(status("broken", components=failing("read-only file system"))))
    fleet.add("conflict", answering(status("conflict", conflicts=["dnat"])))
    fleet.add("stuck", answering(status("stuck", written_at=UPTIME - 151)))
    fleet.add("starting", answering(status("starting", last_sync_seconds=None)))
    fleet.add("crashing", answering(b""), running=False)
    fleet.add("bare", None)
    fleet.add("gone", answering(status("gone")))
    fleet.silence("gone")
    fleet.add("newer", answering(b'{"schemaVersion":"2"}'))
    fleet.add("garbage", answering(b"\xff\x00{"))
    fleet.add("late", answering(status("late")))
    fleet.set_relay("late", ready=False)
    fleet.add("without", lambda _: Ended(1, stderr=b"cat: No such file or directory\n"))
    code, nodes = _nodes(ask)
    assert code == 2
    assert {name: node["state"] for name, node in nodes.items()} == {
        name: wanted["state"] for name, wanted in CASES["states"].items()
    }
    assert list(nodes)[:4] == ["bare", "crashing", "late", "starting"]
    assert nodes["broken"]["components"] == ["hosts"]
    for name, wanted in CASES["states"].items():
        assert [word for word in wanted.get("reason", ()) if word not in nodes[name]["reason"]] == []
    assert all(count in ask("fleet").stdout.splitlines()[-1] for count in CASES["counts"])


def test_a_node_that_should_have_no_pod_is_no_row(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 1)
    fleet.add("excluded", None)
    fleet.want(1)
    code, nodes = _nodes(ask)
    assert (code, list(nodes)) == (0, ["node000"])


def test_a_pod_that_drains_where_it_is_no_longer_wanted_hides_no_node(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 1)
    fleet.add("bare", None)
    fleet.add("left", answering(status("left")))
    fleet.want(2)
    node = api.store.get("nodes", "left")
    node["metadata"]["labels"] = {"kubernetes.io/os": "other"}
    api.store.update(node)
    pod = api.store.get("pods", "nodeagent-left", NAMESPACE)
    pod["metadata"]["finalizers"] = ["example.com/drains"]
    api.store.update(pod)
    api.store.delete("pods", "nodeagent-left", NAMESPACE)
    code, nodes = _nodes(ask)
    assert (code, nodes["bare"]["state"], nodes["left"]["state"]) == (2, "no-pod", "in-sync")


def test_one_object_that_can_not_be_read_hides_no_node(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 2)
    odd = api.store.get("pods", fleet.set_pod("node000", answering(b""), suffix="-odd"), NAMESPACE)
    odd["spec"]["nodeName"] = 7
    api.store.update(odd)
    code, nodes = _nodes(ask)
    assert code == 1
    assert nodes["Pod nodeagent/nodeagent-node000-odd"]["state"] == "unreadable"
    assert nodes["node000"]["state"] == nodes["node001"]["state"] == "in-sync"


@pytest.mark.parametrize("state", ["running", "ready"])
def test_during_a_rollout_the_agent_that_is_ready_is_asked(api: ApiServer, ask: Ask, state: str) -> None:
    """The other one may not run yet, or not be ready."""
    fleet = Fleet(api, 1)
    fleet.set_pod("node000", lambda _: Ended(1), **{state: False}, suffix="-new")
    code, nodes = _nodes(ask)
    assert (code, nodes["node000"]["pod"]) == (0, "nodeagent-node000")


def test_what_a_node_says_does_not_reach_the_terminal(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 0)
    hostile = "\x1b]0;owned\x07\nfleet: 1 of 1 nodes in sync\u202e[bold]"
    fleet.add(
        "node1", answering(status("node1", components={hostile: failing(hostile)["hosts"]}, version=hostile))
    )
    reply = ask("fleet")
    assert reply.exit_code == 2
    assert all(letter.isprintable() or letter == "\n" for letter in reply.stdout)
    assert reply.stdout.splitlines()[-1].startswith("fleet: 0 of 1 ")
    assert len(reply.stdout.splitlines()) == 4


def test_an_endless_answer_is_a_row(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 0)
    fleet.add("node1", lambda _: Ended(0, b"x" * (17 << 20)))
    code, nodes = _nodes(ask)
    assert (code, nodes["node1"]["state"]) == (1, "not-answering")
    assert "more than 16777216 bytes" in nodes["node1"]["reason"]


def test_a_node_that_hangs_holds_up_no_other(api: ApiServer, ask: Ask) -> None:
    Fleet(api, 40)
    held = api.faults.add(faults.Hold(), path="*/nodeagent-node00[0-4]/exec", times=None)
    began = time.monotonic()
    code, nodes = _nodes(ask, "--timeout", "1")
    assert time.monotonic() - began < 20
    api.faults.remove(held)
    states = [node["state"] for node in nodes.values()]
    assert (code, states.count("not-answering"), states.count("in-sync")) == (1, 5, 35)
    assert "no answer in time" in nodes["node000"]["reason"]


def test_an_api_server_that_dies_in_the_middle(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 200)
    count = iter(range(1000))

    def last_words(_: object) -> Ended:
        if next(count) == 0:
            api.stop_listening()
        return Ended(1)

    for name in fleet.nodes:
        fleet.set_pod(name, last_words)
    code, nodes = _nodes(ask)
    assert code == 1
    assert len(nodes) == 200
    # A pod that answered before has no status file.
    states = [node["state"] for node in nodes.values()]
    assert set(states) <= {"not-answering", "unreadable"}
    assert states.count("not-answering") >= 100


def test_five_hundred_nodes_within_twenty_seconds(api: ApiServer, ask: Ask) -> None:
    """Of CPU time, the API server's included: a machine that is busy with other things has no influence."""
    Fleet(api, 500)
    began = time.process_time()
    code, nodes = _nodes(ask)
    elapsed = time.process_time() - began
    assert (code, len(nodes)) == (0, 500)
    assert len(api.traffic.seen("get", "*/exec")) == 500
    assert elapsed < 20


@pytest.mark.parametrize(("served", "fields", "codes"), CASES["believed"])
def test_off_a_node_the_doctor_believes_the_agents(
    api: ApiServer, ask: Ask, served: int, fields: dict[str, Any], codes: list[str]
) -> None:
    fleet = Fleet(api, 0)
    fleet.add("node1", answering(status("node1", load_balancers=DecisionCounts(served), **fields)))
    key = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
    api.store.create(
        objects.load_balancer("web", "ingress", addresses=["203.0.113.250"], annotations={key: "true"})
    )
    reply = ask("doctor", "--from", "nowhere", "--node", "node1", "-o", "json")
    found = {one["code"] for one in reply.document["findings"]}
    assert {*codes} <= found, found
    assert reply.exit_code == (0 if "LoadBalancerRemedied" in codes else 2)


def test_of_a_daemonset_without_pods_the_doctor_knows_nothing(api: ApiServer, ask: Ask) -> None:
    Fleet(api, 0)
    api.store.create(objects.node("node1"))
    reply = ask("doctor", "--from", "nowhere", "--node", "node1", "-o", "json")
    assert "AgentUnknown" in {one["code"] for one in reply.document["findings"]}


@pytest.mark.parametrize(
    ("age", "fields", "state"),
    [
        (2.0, {}, "in-sync"),
        (2.0, {"components": failing("read-only file system")}, "drifted"),
        (900.0, {}, "not-ready"),
    ],
)
def test_the_doctor_reads_this_nodes_own_agent_from_its_file(
    tmp_path: Path, age: float, fields: dict[str, Any], state: str
) -> None:
    file = tmp_path / "agent"
    assert read_own("node1", file) is None
    file.write_bytes(b"not a status")
    unreadable = read_own("node1", file)
    assert unreadable is not None
    assert unreadable.state == "unreadable"
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    file.write_bytes(msgspec.json.encode(status("node1", written_at=now - age, **fields)))
    found = read_own("node1", file)
    assert found is not None
    assert found.state == state
    assert bool(found.reason) is (state != "in-sync")


def test_each_row_has_the_node_s_relay(api: ApiServer, ask: Ask) -> None:
    fleet = Fleet(api, 2)
    relay = fleet.set_relay("node000")
    _, nodes = _nodes(ask)
    assert (nodes["node000"]["relayPod"], nodes["node000"]["relayVersion"]) == (relay, "3.0.11")
    assert nodes["node001"]["relayPod"] == ""
    assert "RELAY" in ask("fleet").stdout.splitlines()[0]
