import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.daemon.managed_state import metadata_of, names, read_managed_state
from tests.daemonset.deployment import Deployment
from tests.daemonset.image_root import ImageRoot
from tests.daemonset.pods import Container
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_NUMBERS = {"NET_BIND_SERVICE": 10, "NET_ADMIN": 12}
"""linux/capability.h."""
_CONTAINERS = ("agent", "relay")


@pytest.fixture(scope="module")
def containers(
    world: World, image: ImageRoot, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Container]]:
    """Those of both pods of a node, ready; work stealing may run some tests later, with others."""
    with Deployment(world, image, tmp_path_factory.mktemp("pods") / "deployment") as deployed:
        pod = deployed.ready_pod()
        yield {"agent": pod.container, "relay": deployed.relays[0].container}


def test_it_suffices_to_serve_and_to_repair(world: World, containers: Mapping[str, Container]) -> None:
    node, agent = world.node1, containers["agent"]
    for user in (node, world.pod1):
        for scheme in ("http", "https"):
            answer = user.curl(f"{scheme}://{SITE}/")
            assert answer.ok, answer
    stands = read_managed_state(node)
    relay = stands.names[SITE]
    assert stands.addresses == {relay}
    assert stands.redirects[f"{LOAD_BALANCER_IP}:443"] == f"{relay}:443"
    assert agent.probe("livenessProbe").exit_code == 0
    # It runs on the image's Python, not on another one.
    assert Path(f"/proc/{agent.pid}/exe").readlink().name.startswith("python3")
    assert agent.execute(["python", "-c", "import sys; print(sys.prefix)"]).stdout == "/opt/nodeagent\n"
    assert '"level": "ERROR"' not in agent.log()
    assert '"level": "WARNING"' not in agent.log()
    # The directory is mounted and not the file: the agent replaces it; and sees that a tool of the node did.
    assert "hosts written (rename)" in agent.log()
    assert metadata_of(node, "/etc/hosts").startswith("644 0:0")
    assert [path.name for path in node.etc.iterdir() if "nodeagent" in path.name] == []
    node.run(["sh", "-c", "grep -v example.test /etc/hosts >/etc/hosts.new; mv /etc/hosts.new /etc/hosts"])
    wait_until(lambda: SITE in names(node), "the name standing again")
    agent.await_probe("readinessProbe")


@pytest.mark.parametrize("name", _CONTAINERS)
def test_a_container_holds_what_is_written_alone(containers: Mapping[str, Container], name: str) -> None:
    container = containers[name]
    status = Path(f"/proc/{container.pid}/status").read_text(encoding="ascii")
    fields = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
    added = container.spec["securityContext"]["capabilities"].get("add", [])
    wanted = f"{sum(1 << _NUMBERS[capability] for capability in added):016x}"
    assert {fields[kind] for kind in ("CapPrm", "CapEff", "CapBnd")} == {wanted}
    assert {fields[kind] for kind in ("CapInh", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.parametrize("name", _CONTAINERS)
def test_a_container_can_write_to_its_volumes_alone(containers: Mapping[str, Container], name: str) -> None:
    container = containers[name]
    for place in ("/", "/var/lib", "/usr/bin", "/etc"):
        answer = container.execute(["touch", f"{place}/written"])
        assert "Read-only file system" in answer.stderr, place
    for mount in container.spec["volumeMounts"]:
        place = f"{mount['mountPath']}/written-by-a-test"
        answer = container.execute(["touch", place])
        assert (answer.exit_code == 0) is not mount.get("readOnly", False), answer
        container.execute(["rm", "-f", place])


def test_the_doctor_can_be_asked_in_the_agents_own_pod(containers: Mapping[str, Container]) -> None:
    """By `kubectl exec`, with the agent's rights; the node's /etc is /host/etc there."""
    doctor, agent = ["nodeagent", "doctor", "-o", "json"], containers["agent"]
    wait_until(lambda: agent.execute(doctor).exit_code == 0, "a healthy node", seconds=20)
    answer = agent.execute(doctor)
    findings = {finding["code"]: finding for finding in answer.document["findings"]}
    assert "affected" not in {finding["status"] for finding in findings.values()}
    assert (answer.exit_code, answer.document["onNode"]) == (0, True)
    assert {"LoadBalancerRemedied", "RemediedByDnat", "AgentInSync", "DataPlaneKnown"} <= set(findings)
    assert findings["NameAtRelay"]["evidence"][0].startswith("this host's resolver: 169.254.66.")
