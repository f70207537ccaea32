"""The rights that the manifests give suffice for all that the agent asks of the API, and none is too many."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from nodeagent.model.objects import ObjectRef
from nodeagent.observe.event_recorder import PendingEvent, post_event
from nodeagent.sources.kubernetes import resources, single_requests
from nodeagent.sources.kubernetes.cluster import Cluster, ResourceState
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import is_going
from nodeagent.sources.objects.kinds import OPTIONAL_KINDS
from tests.apiserver import ApiServer, Resource, objects
from tests.apiserver.access import Rule, rules_bound_to
from tests.daemonset.manifests import DEPLOYMENTS, deployed, workload
from tests.sources.kubernetes.watching import NODE, QUICK, connected, until

Right = tuple[str, ...]  # API group, resource, the object's name if the rule has one, verb
_RELAY = ("hairpin-proxy", "hairpin-proxy")
_IN_RELAYS_NAMESPACE = f"/namespaces/{_RELAY[0]}/"


@cache
def _rules(deployment: str) -> list[Rule]:
    found = deployed(deployment)
    return rules_bound_to(found, "nodeagent", workload(found).spec["serviceAccountName"])


def _relay_of(deployment: str) -> tuple[str, str] | None:
    return _RELAY if deployment == "overlays/existing-relay" else None


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        for kind in OPTIONAL_KINDS:
            server.store.serve(Resource(kind.group, kind.versions[0], kind.plural, kind.kind, custom=True))
        server.store.create_many(
            [
                objects.node(NODE),
                objects.node("other"),
                objects.load_balancer("web", addresses=["203.0.113.10"], annotations={}),
                objects.ingress("site"),
                objects.service(_RELAY[1], _RELAY[0]),
                objects.endpoint_slice("relay-1", _RELAY[1], _RELAY[0], endpoints=[]),
                objects.daemon_set("nodeagent", "nodeagent"),
                objects.daemon_set("other", "nodeagent"),
            ]
        )
        yield server


def missing(api: ApiServer, folder: Path, rules: list[Rule], relay: tuple[str, str] | None) -> set[Right]:
    """Do everything that the agent does with the API under these rules; returns what it was refused."""
    api.access.allow_only(rules)
    with ExitStack() as stack:
        connection = stack.enter_context(connected(api, folder))
        cluster = Cluster(connection, NODE, relay, timing=replace(QUICK, refused=(5.0, 5.0)))
        cluster.start()
        stack.callback(cluster.stop)
        return {*_of_watches(api, cluster, relay), *_of_single_requests(connection)}


def _of_watches(api: ApiServer, cluster: Cluster, relay: tuple[str, str] | None) -> Iterator[Right]:
    rows = [*resources.watched(NODE, relay), resources.NAMESPACES]
    rows += [resources.optional_resource(kind, kind.versions[0]) for kind in OPTIONAL_KINDS]
    paths = {row.name: row.path for row in rows}

    settled: dict[str, ResourceState] = {}

    def all_settled() -> bool:
        """Whether each was once watched, or refused: a new list hides a refused watch for a moment."""
        open_paths = {one.path for one in api.traffic.watches()}
        states = [state for state in cluster.states() if state.name != resources.DISCOVERY]
        for state in states:
            if state.error is not None or (state.synced and paths[state.name] in open_paths):
                settled[state.name] = state
        return len(settled) == len(states)

    until(all_settled, "every resource to be watched or refused")
    for state in settled.values():
        if state.error is not None:
            assert "forbidden" in state.error, state.error
            path = paths[state.name].replace(_IN_RELAYS_NAMESPACE, "/").replace("/namespaces/default/", "/")
            _, root, *group, _, plural = path.split("/")
            name = ("kubernetes",) if state.name == resources.API_SERVERS.name else ()
            assert root == ("apis" if group else "api")
            yield "".join(group), plural, *name, "watch" if state.synced else "list"


def _of_single_requests(connection: Connection) -> Iterator[Right]:
    if post_event(connection, PendingEvent(ObjectRef("Service", "default", "web"), "NameNotVerified", "")):
        yield "", "events", "create"
    # There is such a DaemonSet: only refusals make it seem deleted.
    if is_going(connection, ObjectRef("DaemonSet", "nodeagent", "nodeagent")):
        yield "apps", "daemonsets", "nodeagent", "get"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_requests, "GOING_SECONDS", 0.0)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_rights_suffice(api: ApiServer, tmp_path: Path, deployment: str) -> None:
    assert missing(api, tmp_path, _rules(deployment), _relay_of(deployment)) == set()


@pytest.mark.parametrize("verb", ["list", "watch", "create", "get"])
@pytest.mark.parametrize("deployment", ["base", "overlays/existing-relay"])
def test_no_right_can_be_done_without(api: ApiServer, tmp_path: Path, deployment: str, verb: str) -> None:
    """Without one verb, each resource that it was granted for is refused, and no other."""
    rules = _rules(deployment)
    less = [replace(rule, verbs=[one for one in rule.verbs if one != verb]) for rule in rules]
    taken = {
        (*rule.api_groups, *rule.resources, *rule.resource_names, verb)
        for rule in rules
        if verb in rule.verbs
    }
    assert taken
    assert missing(api, tmp_path, less, _relay_of(deployment)) == taken


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_tests_above_take_away_every_right(deployment: str) -> None:
    """A deployment has no rule and no verb beyond those of the two that are tried."""
    tried = [*_rules("base"), *_rules("overlays/existing-relay")]
    for rule in _rules(deployment):
        assert rule in tried
        assert {*rule.verbs} <= {"list", "watch", "create", "get"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_rule_is_about_one_thing_by_name(deployment: str) -> None:
    """No wildcard, and nothing is granted twice, so that the tests above take away all that there is."""
    for rule in _rules(deployment):
        assert len(rule.api_groups) == len(rule.resources) == 1
        assert "*" not in {*rule.api_groups, *rule.resources, *rule.verbs}
    granted = [(*rule.api_groups, *rule.resources, *rule.resource_names) for rule in _rules(deployment)]
    assert len(granted) == len(set(granted))


def test_the_daemonset_that_it_asks_for_is_its_own() -> None:
    """NODEAGENT_DAEMONSET, made of the pod's namespace, is what the Role names."""
    environment = workload(deployed()).environment
    (rule,) = [one for one in _rules("base") if "daemonsets" in one.resources]
    named = [f"$(POD_NAMESPACE)/{name}" for name in rule.resource_names]
    assert named == [environment["NODEAGENT_DAEMONSET"]]
    assert rule.namespace == "nodeagent"
