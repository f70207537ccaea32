"""A cluster by kubeconfig and ssh: sshd on the world's nodes, the simulated API, a kubelet played here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.__main__ import main
from tests.acceptance.cluster_place import ClusterPlace, Setting
from tests.acceptance.kube_api import ApiRefusalError
from tests.acceptance.load import requests
from tests.acceptance.place import curl
from tests.acceptance.played_cluster import DAEMONSET, following, kubelets, start_sshd
from tests.acceptance.remains import look
from tests.apiserver import ApiServer
from tests.apiserver.manifests import objects_under
from tests.apiserver.store import Part
from tests.daemonset.kustomize import DAEMONSET as BASE
from tests.daemonset.kustomize import render
from tests.testbed.addresses import LB, LOAD_BALANCER_IP, NODE1, NODE2, POD1, SITE
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.http import CurlResult
from tests.testbed.inside import inside
from tests.testbed.telling import FAILED
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.daemonset.kustomize import Object

pytestmark = needs_root

_INSTALLED = ("serviceaccounts", "clusterroles", "clusterrolebindings", "roles", "rolebindings")


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world whose nodes can be reached by ssh."""
    with World() as standing:
        start_sshd(standing)
        yield standing


@pytest.fixture
def api(world: World) -> Iterator[ApiServer]:
    """An API server that knows the world's nodes."""
    server = ApiServer(str(LB))
    for obj in objects_under(MANIFESTS):
        server.store.create(obj)
    with inside(world.lb):
        server.start_listening()
    yield server
    server.close()


@pytest.fixture
def place(world: World, api: ApiServer, tmp_path: Path) -> Iterator[ClusterPlace]:
    """The cluster, seen from the load balancer's machine."""
    setting = Setting(
        kubeconfig=api.write_kubeconfig(tmp_path / "kubeconfig"),
        ssh_config=world.tmp / "ssh-config",
        nodes=("node1", "node2"),
        load_balancer=LOAD_BALANCER_IP,
        image="registry.example.test/image:1",
        pod_image="asking:1",
        kustomization=BASE,
        upgrade_to="nodeagent:next",
    )
    with inside(world.lb), ClusterPlace(setting) as cluster:
        yield cluster


def test_a_nodes_command_arrives_word_for_word(place: ClusterPlace) -> None:
    words = ["two words", "a'b\"c", "$HOME", "*", "", "line\nbreak", ";id"]
    said = place.on_node("node2", ["sh", "-c", 'printf "[%s]" "$@"; echo oops >&2; exit 7', "sh", *words])
    assert said.done.stdout == "".join(f"[{word}]" for word in words)
    assert (said.done.stderr, said.done.returncode) == ("oops\n", 7)
    assert said.address == NODE2
    assert place.on_node("node1", ["hostname"]).done.stdout == "node1\n"


def test_a_node_that_is_not_reached_or_not_known_is_an_error(place: ClusterPlace, world: World) -> None:
    with pytest.raises(WorldError, match=r"node1: sleep took longer than 0\.2 s"):
        place.on_node("node1", ["sleep", "60"], seconds=0.2)
    assert world.node1.run(["pgrep", "-x", "sleep"], check=False).stdout == "", "it goes on on the node"
    with pytest.raises(WorldError, match=r"node9: ssh: .*node9"):
        place.on_node("node9", ["true"])


def test_the_steps_tools_work_by_ssh(place: ClusterPlace, world: World) -> None:
    curled = curl(place, "node1", f"http://{SITE}/")
    assert curled.answer.cut
    assert curled.asker == NODE1
    before = look(place, "node1")
    assert before.traces == ""
    assert "644 0:0" in before.hosts or "-rw-r--r-- 0:0" in before.hosts
    world.node1.run(["ip", "address", "add", "169.254.66.9/32", "dev", "lo"])
    world.node1.run(["nft", "add", "table", "inet", "nodeagent"])
    try:
        assert look(place, "node1").traces == "169.254.66.9/32\ntable inet nodeagent\n"
    finally:
        world.node1.run(["nft", "delete", "table", "inet", "nodeagent"])
        world.node1.run(["ip", "address", "del", "169.254.66.9/32", "dev", "lo"])
    with requests(place, "node1", f"http://{SITE}/") as outcome:
        pass
    assert outcome.answered == 0
    assert look(place, "node1") == before


def test_a_pods_answer_is_its_own(place: ClusterPlace, api: ApiServer, world: World) -> None:
    with kubelets(api, world):
        curled = curl(place, "node1", f"http://{SITE}/", pod=True)
        told = place.in_pod("node1", ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert curled.answer == CurlResult(52, 0, "", "curl: (52) Empty reply from server")
    assert curled.asker == POD1
    assert (told.done.returncode, told.done.stdout, told.done.stderr) == (3, "out\n", "err\n")
    assert api.store.all("pods") == [], "pods are taken away"


def test_a_pull_is_the_kubelets(place: ClusterPlace, api: ApiServer, world: World) -> None:
    refused = 'failed to pull image: Head "https://registry.example.test": read: connection reset by peer'
    with kubelets(api, world, lambda _node, _image: refused):
        pulled = place.pull("node1")
    assert (pulled.ok, pulled.reason) == (False, refused)
    with kubelets(api, world) as seen:
        assert place.pull("node1").ok
    (pod,) = seen
    assert pod["spec"]["nodeName"] == "node1"
    (container,) = pod["spec"]["containers"]
    # What is on the node already must not count.
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example.test/image:1", "Always")
    assert api.store.all("pods") == []


def test_a_pod_that_can_not_be_made_is_an_error_and_no_answer(
    place: ClusterPlace, api: ApiServer, world: World
) -> None:
    with (
        kubelets(api, world, lambda _node, _image: "no such image"),
        pytest.raises(WorldError, match="no such"),
    ):
        place.in_pod("node1", ["true"])


def test_install_upgrade_and_uninstall_are_an_administrators(place: ClusterPlace, api: ApiServer) -> None:
    assert not place.uninstall_what_stands()
    with _controller(api) as generations:
        place.install()
        installed = render(BASE)
        for obj in installed:
            plural = api.store.resource_of(obj).plural
            found = api.store.get(plural, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
            assert {key: found.get(key) for key in obj if key != "metadata"} == {
                key: value for key, value in obj.items() if key != "metadata"
            }
        with pytest.raises(ApiRefusalError, match="already exists"):
            place.install()

        place.upgrade()
        template = api.store.get(*DAEMONSET)["spec"]["template"]
        images = {one["name"]: one["image"] for one in template["spec"]["containers"]}
        assert images == {"agent": "nodeagent:next", "relay": "haproxy:3.0.11"}
        assert template["spec"]["initContainers"][0]["image"] == "nodeagent:next"
        assert template["spec"]["containers"][0]["volumeMounts"], "the rest of the container stays"
        assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
        assert generations == [1, 2]

        place.uninstall()
    assert [api.store.all(plural) for plural in _INSTALLED] == [[]] * len(_INSTALLED)
    assert api.store.all("daemonsets") == []
    deleted = [one.path for one in api.traffic.seen("delete")][-len(installed) :]
    assert deleted[0].endswith("/daemonsets/nodeagent"), "the agents need their rights to the end"
    with pytest.raises(WorldError, match="nothing of nodeagent was there"):
        place.uninstall()


def test_an_unusable_kubeconfig_is_reported_to_the_person_at_the_keyboard(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(kubeconfig: Path) -> str:
        required = ["--load-balancer", "192.0.2.1", "--image", "i", "--pod-image", "p", "--node", "node1"]
        files = ["--kubeconfig", kubeconfig, "--ssh-config", kubeconfig, "--kustomization", BASE]
        with inside(world.lb):
            assert main(["cluster", *required, *map(str, files)]) == FAILED
        return capsys.readouterr().out

    assert f"{tmp_path}/none: can't be used to reach the API server" in told(tmp_path / "none")
    nobody_there = ApiServer(str(LB), 6443).write_kubeconfig(tmp_path / "kubeconfig")
    assert "http://192.0.2.2:6443: Connection refused" in told(nobody_there)


@contextmanager
def _controller(api: ApiServer) -> Iterator[list[int]]:
    """Roll the DaemonSet out on two nodes when its template changes; yields the generations rolled out."""
    generations: list[int] = []
    templates: list[Object] = []

    def asked() -> int:
        return len(api.traffic.seen("get", "*/daemonsets/nodeagent"))

    def say(observed: int, updated: int, available: int) -> None:
        status = {
            "observedGeneration": observed,
            "desiredNumberScheduled": 2,
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
        }
        api.store.patch(*DAEMONSET, {"status": status}, part=Part.STATUS)
        # No caller continues before the rollout is complete, however often it asks.
        before = asked()
        complete = observed > len(generations) and updated == available == 2
        wait_until(lambda: complete or asked() > before, "the DaemonSet being asked for")

    def take(found: Object) -> None:
        if "deletionTimestamp" in found["metadata"]:
            api.store.patch(*DAEMONSET, {"metadata": {"finalizers": None}})
            return
        if found["spec"]["template"] in templates:
            return
        templates.append(found["spec"]["template"])
        number = found["metadata"]["generation"]
        old = min(number - 1, 1) * 2
        say(number - 1, old, old)
        say(number, 1, 2)
        say(number, 2, 1)
        say(number, 2, 2)
        generations.append(number)

    with following(api, "daemonsets", take):
        yield generations
