"""The agent against a live API, turn by turn, with a hosts file of its own."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from nodeagent.agent.loop import Agent, AgentSettings
from nodeagent.agent.node_lock import exclusive
from nodeagent.agent.reconciler import Reconciler
from nodeagent.cli.main import run
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.model.objects import ObjectRef
from nodeagent.observe import event_recorder, status
from nodeagent.observe.status import parse_status, status_path
from nodeagent.sources.kubernetes import single_requests
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.reflector import Timing
from tests.agent.scraping import read
from tests.apiserver import ApiServer, Rule, custom, faults, objects
from tests.observe.serving import get
from tests.sources.kubernetes.watching import ingress_route
from tests.testbed.waiting import wait_until

_USERS = "127.0.0.1 localhost\n"
_LB = "203.0.113.10"
_RELAY = "10.96.0.66"
_DAEMON_SETS = "*/daemonsets/*"
_LISTED = "services: [{namespace: ingress, name: controller}]"


class Node:
    """A node's hosts file, its API, and an agent whose turns the test makes."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.hosts = folder / "etc" / "hosts"
        self.hosts.parent.mkdir()
        self.hosts.write_text(_USERS)
        self.config = folder / "nodeagent.yaml"
        self.configure()
        self.connection = connect(api.write_kubeconfig(folder / "kubeconfig"))
        self.agent = self.new_agent()
        self._ended = False

    def new_agent(self, *, adopt: bool = False) -> Agent:
        own = ObjectRef("DaemonSet", "nodeagent", "nodeagent")
        settings = AgentSettings("n1", self.config, None, own, ListenAddress("127.0.0.1:0"), adopt)
        return Agent(settings, read_config(self.config), self.connection)

    def restart(self, *, adopt: bool = False) -> None:
        self.api.store.apply(objects.daemon_set("nodeagent", "nodeagent"))
        self.end()
        self._ended = False
        self.agent = self.new_agent(adopt=adopt)
        self.agent.start()

    def configure(self, hosts: str = "", load_balancers: str = _LISTED) -> None:
        """Write the configuration, with more options for the hosts file; the agent reads it by `reload`."""
        self.config.write_text(
            f"relay: {{kind: service, runDir: {self.folder}/run}}\n"
            "dnat: {backend: none}\n"
            f"loadBalancers: {{{load_balancers}}}\n"
            f"hosts: {{file: {self.hosts}, verify: allow, allow: [example.test]{hosts}}}\n"
        )

    def turn(self) -> None:
        self.agent.wake_up.wake()
        self.agent.turn()

    def turn_until(self, holds: Callable[[], bool], what: str) -> None:
        """Make turns until something holds: objects arrive in threads of their own."""

        def held() -> bool:
            self.turn()
            return holds()

        wait_until(held, what, every=0.02)

    def has(self, *names: str) -> Callable[[], bool]:
        return lambda: self.names() == set(names)

    def names(self) -> set[str]:
        lines = (line.partition("#")[0].split() for line in self.hosts.read_text().splitlines())
        return {name for line in lines if line[:1] == [_RELAY] for name in line[1:]}

    def add(self, name: str, *hosts: str) -> None:
        self.api.store.apply(objects.ingress(name, hosts=hosts, addresses=[_LB]))

    def page(self, path: str) -> str:
        return get(self.agent.service.bound, path, headers="Host: localhost\r\n").body

    def metric(self, name: str, **labels: str) -> float | None:
        return read(self.page("/metrics").encode()).value(name, **labels)

    def await_in_file(self, text: str) -> None:
        path = status_path(self.folder / "run")
        wait_until(lambda: text in path.read_text(), f"{text} in the status file")

    def end(self) -> None:
        """Let the agent end, as after SIGTERM. Idempotent."""
        if not self._ended:
            self._ended = True
            self.agent.stop()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_a_table: None) -> Iterator[Node]:
    """Its agent has written the first names, and reports rejected ones at once."""
    monkeypatch.setattr(event_recorder, "_PATIENCE", 0)
    with ApiServer() as api:
        api.store.create(objects.node("n1"))
        api.store.create(objects.load_balancer("controller", "ingress", addresses=[_LB], annotations={}))
        api.store.create(objects.service("hairpin-proxy", "hairpin-proxy", cluster_ips=[_RELAY]))
        api.store.create(objects.ingress("site", hosts=["site.example.test"], addresses=[_LB]))
        made = Node(api, tmp_path)
        with made.connection:
            made.agent.start()
            made.turn_until(made.has("site.example.test"), "the first names")
            yield made
            made.end()


def test_it_writes_what_the_cluster_asks_for_and_says_so(node: Node) -> None:
    assert node.hosts.read_text().startswith(_USERS)
    assert node.page("/readyz").startswith("ready\n")
    node.add("more", "more.example.test")
    node.turn_until(node.has("site.example.test", "more.example.test"), "one more")
    node.api.store.delete("ingresses", "site", "default")
    node.turn_until(node.has("more.example.test"), "one less")
    wait_until(lambda: status_path(node.folder / "run").exists(), "the status document")
    assert parse_status(status_path(node.folder / "run").read_bytes()).node == "n1"


def test_lines_that_hairpin_proxy_left_stay_unless_they_are_to_be_taken_over(node: Node) -> None:
    left = "10.96.0.77 site.example.test # Added by hairpin-proxy\n"
    node.hosts.write_text(_USERS + left)
    node.add("more", "more.example.test")
    node.turn_until(node.has("more.example.test"), "the other name")
    assert left in node.hosts.read_text()
    node.restart(adopt=True)
    node.turn_until(node.has("site.example.test", "more.example.test"), "the name taken over")
    assert left not in node.hosts.read_text()
    assert node.hosts.read_text().startswith(_USERS)


def test_a_malformed_object_is_skipped_and_no_other_one(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    broken = objects.ingress("broken", hosts=["broken.example.test"], addresses=[_LB])
    broken["spec"]["rules"] = "not a list"
    node.api.store.apply(broken)
    node.add("sound", "sound.example.test")
    with caplog.at_level("WARNING"):
        node.turn_until(node.has("site.example.test", "sound.example.test"), "the sound one")
    (skipped,) = [one.__dict__["fields"] for one in caplog.records if one.msg == "Skipped an object"]
    assert skipped["object"] == "Ingress default/broken"
    assert "rules" in skipped["reason"]
    node.add("broken", "mended.example.test")
    node.turn_until(lambda: "mended.example.test" in node.names(), "the mended one")


def test_many_events_are_few_passes(node: Node) -> None:
    before = node.metric("nodeagent_apply_duration_seconds_count", component="hosts") or 0
    for number in range(300):
        node.add(f"burst-{number}", f"burst-{number}.example.test")
    node.turn_until(lambda: len(node.names()) == 301, "all names")
    counted = "nodeagent_apply_duration_seconds_count"
    wait_until(lambda: (node.metric(counted, component="hosts") or 0) > before, "a page made since")
    assert (node.metric(counted, component="hosts") or 0) - before <= 6


def test_a_second_agent_waits_and_says_for_whom(node: Node) -> None:
    second = node.new_agent()
    second.start()
    try:
        second.turn()
        page = get(second.service.bound, "/readyz", headers="Host: localhost\r\n").body
        assert page.startswith(f"not ready: process {os.getpid()} has the node's lock")
        node.add("more", "more.example.test")
        second.turn()
        assert node.names() == {"site.example.test"}
        node.turn_until(node.has("site.example.test", "more.example.test"), "the first one's work")
    finally:
        second.stop()
    assert status_path(node.folder / "run").exists(), "the first one's"


def test_an_agent_that_loses_the_lock_stops_to_write_and_goes_on_later(node: Node) -> None:
    (node.folder / "run" / "lock").unlink()
    with exclusive(node.folder / "run", 1.0):
        node.turn()
        assert node.page("/readyz").startswith("not ready: process")
        node.add("more", "more.example.test")
        node.api.traffic.wait_for_requests("watch", "*/ingresses")
        for _ in range(5):
            node.turn()
        assert node.names() == {"site.example.test"}
    node.turn_until(node.has("site.example.test", "more.example.test"), "what came meanwhile")


def test_a_reload_counts_at_once_and_a_bad_one_is_in_the_status_and_commands_use_the_active_one(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(status, "IN_POD", status_path(node.folder / "run"))
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "object.json").write_text(json.dumps(objects.ingress("web")))
    node.configure(", exclude: [site.example.test]")
    node.agent.reload()
    node.turn_until(node.has(), "the exclusion")
    node.configure(", enabeld: true")
    node.agent.reload()
    node.turn()
    assert "config: failed since 0 s: " in node.page("/readyz")
    assert "enabeld: unknown key" in node.page("/readyz")
    assert node.metric("nodeagent_failing", component="config") == 1
    assert node.metric("nodeagent_config_reloads_total", result="rejected") == 1
    node.add("more", "more.example.test")
    node.turn_until(node.has("more.example.test"), "what comes afterwards")
    options = ["--config", str(node.config), "--manifests", str(tmp_path / "none")]
    node.await_in_file('"rejected":{')
    for command in ("status", "doctor"):
        run([command, *options])
        said = capsys.readouterr()
        assert "enabeld: unknown key" in said.err
        assert "by the active one" in said.err
        assert said.out
    assert run(["plan", *options]) == 1
    node.configure("")
    node.agent.reload()
    node.turn()
    assert "config: ok" in node.page("/readyz")
    node.await_in_file('"rejected":null')
    assert run(["status", *options]) in {0, 1, 2}
    assert "the one that is active" not in capsys.readouterr().err


def test_a_pass_that_raises_leaves_all_to_the_next_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Reconciler, "reconcile", Mock(side_effect=ZeroDivisionError("an odd object")))
        node.add("more", "more.example.test")
        node.turn_until(lambda: "ZeroDivisionError" in node.page("/readyz"), "the failure")
    assert node.names() == {"site.example.test"}
    assert 0 < node.agent.seconds_until_pass() <= 10.1
    node.agent.make_pass()
    assert node.names() == {"site.example.test", "more.example.test"}
    assert "plan: ok" in node.page("/readyz")


def test_a_rejected_hostname_is_one_event_on_its_service(node: Node) -> None:
    node.add("foreign", *(f"n{number}.example.org" for number in range(20)))
    node.turn_until(lambda: bool(node.api.store.all("events")), "the Event")
    for number in range(5):
        node.add("more", f"more-{number}.example.test")
        node.turn_until(node.has("site.example.test", f"more-{number}.example.test"), "a change")
    (event,) = node.api.store.all("events")
    assert (event["type"], event["reason"]) == ("Warning", "NameNotVerified")
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Service", "controller")
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "ingress"
    assert "Ingress default/foreign" in event["message"]
    assert "no suffix in hosts.allow covers it" in event["message"]
    assert event["message"].endswith("and 15 more")
    assert event["source"] == {"component": "nodeagent", "host": "n1"}


def test_where_events_are_forbidden_it_goes_on(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.api.access.allow_only([Rule(["*"], ["*"], ["get", "list", "watch"])])
    node.add("foreign", "one.example.org")
    node.turn_until(node.has("site.example.test"), "the first names")
    node.add("foreign", "localhost")
    node.turn_until(lambda: "Could not post an Event" in caplog.text, "the log")
    (said,) = [str(record.__dict__["fields"]) for record in caplog.records if "post" in record.msg]
    assert '{apiGroups: [""], resources: ["events"], verbs: ["create"]}' in said


@pytest.mark.parametrize("answer", [faults.Answer(401), faults.Answer(403), faults.html_page(), None])
def test_what_is_no_list_is_not_read_as_no_objects(node: Node, answer: faults.RequestFault | None) -> None:
    """A refusal, a page of a proxy, or no answer at all."""
    before = node.hosts.stat().st_ino
    if answer:
        node.api.faults.add(answer, times=None)
        node.api.end_watches()
    else:
        node.api.stop_listening()
    node.turn_until(lambda: "api: failed since" in node.page("/readyz"), "the failure")
    assert node.metric("nodeagent_failing", component="api") == 1
    assert node.page("/readyz").startswith("ready\n"), "what is applied stays applied"
    assert node.hosts.stat().st_ino == before
    node.hosts.write_text(_USERS)
    node.turn_until(node.has("site.example.test"), "the repair, which needs no API")
    node.api.faults.clear()
    if not answer:
        node.api.start_listening()
    node.add("more", "more.example.test")
    node.turn_until(node.has("site.example.test", "more.example.test"), "what came afterwards")


def test_without_the_api_at_its_start_the_node_keeps_what_it_has(node: Node) -> None:
    before = node.hosts.stat().st_ino
    node.api.store.apply(objects.daemon_set("nodeagent", "nodeagent"))
    node.end()
    node.api.stop_listening()
    node.restart()
    node.turn_until(lambda: "Connection refused" in node.page("/readyz"), "the failure")
    assert node.page("/readyz").startswith("not ready: this process has not applied")
    assert node.page("/healthz").startswith("alive")
    assert (node.metric("nodeagent_failing", component="api"), node.hosts.stat().st_ino) == (1, before)
    node.api.start_listening()
    node.add("more", "more.example.test")
    node.turn_until(node.has("site.example.test", "more.example.test"), "what came later")


_NO_SUCH_API = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{},'
    b'"message":"the server could not find the requested resource","code":404}'
)


@pytest.mark.parametrize(
    ("answers", "cleans"),
    [
        # An API that is away, silent or that another program answers for is no reason to clean up:
        ([None], False),
        *(
            ([fault], False)
            for fault in (faults.Hold(), faults.Answer(500), faults.Disconnect(), faults.html_page(403))
        ),
        # a proxy, a server that is starting, and one that does not serve this API.
        ([faults.html_page(404)], False),
        ([faults.Answer(404, body=b"404 page not found\n", content_type="text/plain")], False),
        ([faults.Answer(404, body=_NO_SUCH_API)], False),
        # Refusals until the end mean that it was uninstalled: `kubectl delete -k` deletes its rights first.
        ([faults.Answer(401)], True),
        ([faults.Answer(403)], True),
        # A starting API server refuses at first; then it answers, or is away.
        ([faults.Answer(403), None], False),
        ([faults.Answer(403), faults.Disconnect()], False),
    ],
)
def test_it_cleans_up_only_if_it_is_known_that_it_was_uninstalled(
    node: Node,
    answers: list[faults.RequestFault | None],
    cleans: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(single_requests, "GOING_SECONDS", 1.0)
    monkeypatch.setattr(single_requests, "_BETWEEN_LOOKS", 0.3)
    monkeypatch.setattr(single_requests, "_ATTEMPT_SECONDS", 0.3)
    node.api.store.create(objects.daemon_set("nodeagent", "nodeagent"))
    *first, last = answers
    for fault in (fault for fault in first if fault):
        node.api.faults.add(fault, path=_DAEMON_SETS, times=2)
    if last:
        node.api.faults.add(last, path=_DAEMON_SETS, times=None)
    node.end()
    assert (node.hosts.read_text() == _USERS) is cleans
    assert ("Could not check if the DaemonSet was deleted" in caplog.text) is (bool(last) and not cleans)


def test_a_namespace_that_is_deleted_takes_its_pods_first(node: Node) -> None:
    node.api.store.create(objects.daemon_set("nodeagent", "nodeagent"))
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nodeagent", "finalizers": ["x/y"]}}
    node.api.store.create(made)
    node.api.store.delete("namespaces", "nodeagent")
    node.end()
    assert node.hosts.read_text() == _USERS


@pytest.mark.parametrize("finalizers", [[], ["foregroundDeletion"]], ids=["deleted", "its pods are ending"])
def test_one_that_ends_before_its_first_pass_removes_what_was_left(node: Node, finalizers: list[str]) -> None:
    """The DaemonSet is deleted while the node's pod is being started again."""
    node.restart()
    own = objects.daemon_set("nodeagent", "nodeagent")
    node.api.store.apply({**own, "metadata": {**own["metadata"], "finalizers": finalizers}})
    assert node.names() == {"site.example.test"}
    node.api.store.delete("daemonsets", "nodeagent", "nodeagent")
    node.end()
    assert node.hosts.read_text() == _USERS


def test_what_could_not_be_read_yet_takes_nothing_away(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API group that is down while the agent starts: its lines stay, new ones come, and none goes."""
    node.api.store.serve(*custom("traefik.io", "v1alpha1", "IngressRoute"))
    node.api.store.create(ingress_route("route.example.test"))
    node.turn_until(node.has("site.example.test", "route.example.test"), "both names")
    down = node.api.faults.add(faults.Answer(503), path="/apis/traefik.io/v1alpha1", times=None)
    monkeypatch.setattr("nodeagent.sources.kubernetes.cluster.Timing", partial(Timing, optional_wait=0.1))
    node.restart()
    node.add("site", "b.example.test")
    node.turn_until(lambda: "b.example.test" in node.names(), "a new name")
    assert node.names() == {"site.example.test", "b.example.test", "route.example.test"}
    assert "ingressroutes.traefik.io" in str(node.agent._status.desired.remarks)  # noqa: SLF001
    node.api.faults.remove(down)
    node.turn_until(node.has("b.example.test", "route.example.test"), "what is read to count")
