"""The containers with the DaemonSet's own security context: what they can do with it, and what they can't."""

import re
from pathlib import Path

import pytest

from tests.daemon.managed_state import metadata_of, names, read_managed_state
from tests.daemonset.deployment import pod_template
from tests.daemonset.pods import Pod
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_NUMBERS = {"NET_BIND_SERVICE": 10, "NET_ADMIN": 12}
"""linux/capability.h."""
_CONTAINERS = [spec["name"] for spec in pod_template()["spec"]["containers"]]


def test_it_suffices_to_serve_and_to_repair(world: World, pod: Pod) -> None:
    node = world.node1
    for user in (node, world.pod1):
        for scheme in ("http", "https"):
            answer = user.curl(f"{scheme}://{SITE}/")
            assert answer.ok, answer
    stands = read_managed_state(node)
    relay = stands.names[SITE]
    assert stands.addresses == {relay}
    assert stands.redirects[f"{LOAD_BALANCER_IP}:443"] == f"{relay}:443"
    assert pod.agent.probe("startupProbe").exit_code == 0
    assert '"level": "ERROR"' not in pod.agent.log()
    assert '"level": "WARNING"' not in pod.agent.log()
    # The directory is mounted and not the file: the agent replaces it; and sees that a tool of the node did.
    assert "hosts written (rename)" in pod.agent.log()
    assert metadata_of(node, "/etc/hosts").startswith("644 0:0")
    assert [path.name for path in node.etc.iterdir() if "nodeagent" in path.name] == []
    node.run(["sh", "-c", "grep -v example.test /etc/hosts >/etc/hosts.new; mv /etc/hosts.new /etc/hosts"])
    wait_until(lambda: SITE in names(node), "the name standing again")
    pod.await_ready()


@pytest.mark.parametrize("name", _CONTAINERS)
def test_a_container_holds_what_is_written_and_no_more(pod: Pod, name: str) -> None:
    container = pod.containers[name]
    status = Path(f"/proc/{container.pid}/status").read_text(encoding="ascii")
    fields = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
    added = container.spec["securityContext"]["capabilities"].get("add", [])
    wanted = f"{sum(1 << _NUMBERS[capability] for capability in added):016x}"
    assert {fields[kind] for kind in ("CapPrm", "CapEff", "CapBnd")} == {wanted}
    assert {fields[kind] for kind in ("CapInh", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.parametrize("name", _CONTAINERS)
def test_a_container_can_write_to_its_volumes_alone(pod: Pod, name: str) -> None:
    container = pod.containers[name]
    for place in ("/", "/var/lib", "/usr/bin", "/etc"):
        answer = container.execute(["touch", f"{place}/written"])
        assert "Read-only file system" in answer.stderr, place
    for mount in container.spec["volumeMounts"]:
        place = f"{mount['mountPath']}/written-by-a-test"
        answer = container.execute(["touch", place])
        assert (answer.exit_code == 0) is not mount.get("readOnly", False), answer
        container.execute(["rm", "-f", place])
