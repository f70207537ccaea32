"""The containers with the DaemonSet's own security context: what they can do with it, and what they can't."""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

import pytest

from tests.daemon.managed_state import hosts_inode, metadata_of, names, read_managed_state
from tests.daemonset.deployment import pod_template
from tests.daemonset.kustomize import Object
from tests.daemonset.pods import Container, Pod, privileges
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.namespaces import Host
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

_NUMBERS = {"NET_BIND_SERVICE": 10, "NET_ADMIN": 12}
"""linux/capability.h."""
_CONTAINERS = [spec["name"] for spec in pod_template()["spec"]["containers"]]
# What the agent does, to each file that is named; a line for each, which says what went wrong.
_REPLACE = """
import sys
from pathlib import Path
from nodeagent.components.hosts import file
from nodeagent.errors import ApplyError
for path in map(Path, sys.argv[1:]):
    try:
        before = file.read(path)
        file.write_atomic(path, before, before.content + b"another line\\n")
    except ApplyError as error:
        print(error)
    else:
        print("replaced")
"""
_NEEDED: tuple[tuple[str, list[str]], ...] = (
    ("true", []),
    ("chmod 0600 {}", []),
    ("setfattr -n user.origin -v cloud-init {}", []),
    ("setfacl -m u:1000:rw {}", []),
    ("chgrp 1000 {}", ["CHOWN"]),
    ("chown 1000:1000 {}", ["CHOWN", "FOWNER"]),
    ("chown 1000:1000 {0}; setfacl -m u:1000:rw {0}", ["CHOWN", "FOWNER"]),
    ("chown 1000:1000 {0}; chmod 0600 {0}", ["CHOWN", "FOWNER", "DAC_OVERRIDE"]),
    ("chown 1000:1000 {0}; setfattr -n user.origin -v x {0}", ["CHOWN", "FOWNER", "DAC_OVERRIDE"]),
)
"""How a hosts file is prepared, and the capabilities that its rename needs then."""


@pytest.fixture(scope="module", autouse=True)
def hosts_file_before(world: World) -> tuple[int, str]:
    """The inode of node1's hosts file and what else must stay, before there is a pod."""
    return hosts_inode(world.node1)[0], metadata_of(world.node1, "/etc/hosts")


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
    # The directory is mounted and not the file: a tool of the node replaces it, and the agent sees that.
    node.run(["sh", "-c", "grep -v example.test /etc/hosts >/etc/hosts.new; mv /etc/hosts.new /etc/hosts"])
    wait_until(lambda: SITE in names(node), "the name standing again")
    pod.await_ready()


def test_the_hosts_file_is_replaced_by_a_rename(
    world: World, hosts_file_before: tuple[int, str], pod: Pod
) -> None:
    node = world.node1
    inode, metadata = hosts_file_before
    assert hosts_inode(node)[0] != inode
    assert metadata_of(node, "/etc/hosts") == metadata
    assert "hosts written (rename)" in pod.agent.log()
    assert [path.name for path in node.etc.iterdir() if "nodeagent" in path.name] == []


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


def test_what_the_rename_of_a_hosts_file_needs(world: World, pod: Pod) -> None:
    """Root's own, whatever its mode, attributes and ACL: no capability. Others': as listed.

    Python is started once for each set of capabilities, and replaces all files that are tried with it.
    """
    node = world.node1
    trial = node.etc / "trial"
    lacking: dict[frozenset[str], list[str]] = defaultdict(list)
    sufficient: dict[frozenset[str], list[str]] = defaultdict(list)
    before: dict[str, tuple[int, str]] = {}
    try:
        for number, (prepare, needed) in enumerate(_NEEDED):
            path = f"/etc/trial/{number}/hosts"
            (trial / str(number)).mkdir(parents=True)
            (trial / str(number) / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
            node.run(["sh", "-c", prepare.format(path)])
            before[path] = _inode(node, path), metadata_of(node, path)
            sufficient[frozenset(needed)].append(path)
            for missing in needed:
                lacking[frozenset(needed) - {missing}].append(path)
        for capabilities, paths in lacking.items():
            for path, said in zip(paths, _replace(pod.agent, capabilities, paths), strict=True):
                refused = rf"can't (read|replace) /host{path}: .* (not permitted|denied)"
                assert re.search(refused, said), (capabilities, said)
                assert [file.name for file in (trial / path.split("/")[3]).iterdir()] == ["hosts"]
                assert (_inode(node, path), metadata_of(node, path)) == before[path]
        for capabilities, paths in sufficient.items():
            assert _replace(pod.agent, capabilities, paths) == ["replaced"] * len(paths), capabilities
            for path in paths:
                assert _inode(node, path) != before[path][0]
                assert metadata_of(node, path) == before[path][1]
    finally:
        shutil.rmtree(trial)


def test_a_relay_of_another_user_could_not_bind_443(world: World, pod: Pod) -> None:
    """Why the relay runs as root: Kubernetes adds a capability to the bounding set, and not as ambient."""
    relay = next(iter(read_managed_state(world.node1).addresses))
    spec = deepcopy(pod.relay.spec)
    assert spec["securityContext"]["capabilities"]["add"] == ["NET_BIND_SERVICE"]
    assert _binds(pod.relay, spec, relay)
    spec["securityContext"]["runAsUser"] = 99
    assert not _binds(pod.relay, spec, relay)


def _binds(relay: Container, spec: Object, address: str) -> bool:
    """Return whether a program of a container could bind port 443, next to the relay that listens there."""
    program = (
        "use IO::Socket::INET; "
        f"IO::Socket::INET->new(LocalAddr => '{address}', LocalPort => 443, Listen => 1, ReusePort => 1) "
        "or die $!"
    )
    done = relay.node.run([*privileges(spec), "perl", "-e", program], check=False)
    assert done.returncode == 0 or "Permission denied" in done.stderr or "Address already" in done.stderr, (
        done
    )
    # Another user's sockets are not shared with root's; but first comes the right to the port.
    assert "Address already" not in done.stderr, done
    return done.returncode == 0


def _replace(agent: Container, capabilities: Iterable[str], paths: list[str]) -> list[str]:
    """Replace files on trial as the agent replaces the node's hosts file; returns what was said of each."""
    spec = deepcopy(agent.spec)
    spec["securityContext"]["capabilities"]["add"] = sorted(capabilities)
    answer = agent.execute(["python", "-c", _REPLACE, *(f"/host{path}" for path in paths)], spec=spec)
    assert answer.exit_code == 0, answer
    return answer.stdout.splitlines()


def _inode(node: Host, path: str) -> int:
    return (node.etc / path.removeprefix("/etc/")).stat().st_ino
