import time

import pytest

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.fail_static import KindState
from nodeagent.sources.kubernetes.reflector import Timing
from nodeagent.sources.kubernetes.single_requests import read_cluster, unread_kinds
from nodeagent.sources.objects.kinds import OPTIONAL_KINDS
from tests.apiserver import GATEWAY_API, ApiServer, Rule, custom, faults, objects

from .watching import NODE, QUICK, Watched, ingress_route, unordered, until, watching

GROUP = "gateway.networking.k8s.io"
ROUTES = f"httproutes.{GROUP}"
HTTP_ROUTES = [row for row in GATEWAY_API if row.plural == "httproutes"]
TRAEFIK = custom("traefik.io", "v1alpha1", "IngressRoute")
ALL_BUT_ROUTES = [
    Rule([""], ["services", "nodes", "namespaces"], ["list", "watch"]),
    Rule(["networking.k8s.io"], ["*"], ["list", "watch"]),
    Rule(["discovery.k8s.io"], ["endpointslices"], ["list", "watch"], ["kubernetes"]),
    Rule([GROUP], ["gateways"], ["list", "watch"]),
]


def hostnames(watched: Watched) -> list[str]:
    return sorted(name for route in watched.snapshot().routes for name in route.hostnames)


def until_hostnames(watched: Watched, *expected: str) -> None:
    until(lambda: hostnames(watched) == sorted(expected), f"hostnames {expected}")


def until_looked(api: ApiServer, times: int) -> None:
    """Return when the server was asked so many times more what it has."""
    looked = len(api.traffic.seen("get", "/apis"))
    api.traffic.wait_for_requests("get", "/apis", looked + times)


def coverage(watched: Watched, name: str = ROUTES) -> KindState:
    return watched.state(name).state


def test_a_cluster_without_them_is_no_error(api: ApiServer, connection: Connection) -> None:
    with watching(api, connection) as watched:
        until(lambda: not watched.snapshot().pending, "what is missing to be believed")
        states = {state.name: state for state in watched.cluster.states()}
        absent = {name for name, state in states.items() if state.state is KindState.ABSENT}
        optional = {kind.name for kind in OPTIONAL_KINDS}
        assert absent == optional - {"servicecidrs.networking.k8s.io"} | {"namespaces"}
        assert [state.error for state in states.values()] == [None] * len(states)
        assert watched.snapshot().not_covered == ()
        api.traffic.wait_for_requests("get", "/apis", 3)
        assert {seen.path for seen in api.traffic.seen("*", "/apis*")} == {
            "/apis",
            "/apis/networking.k8s.io/v1/ingresses",
            "/apis/networking.k8s.io/v1/ingressclasses",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            "/apis/networking.k8s.io/v1",
            "/apis/networking.k8s.io/v1/servicecidrs",
        }


def test_a_kind_that_claims_hostnames_and_is_not_read_is_known(
    api: ApiServer, connection: Connection
) -> None:
    api.store.serve(*TRAEFIK, *custom("ako.vmware.com", "v1beta1", "HostRule"))
    assert unread_kinds(connection) == ("hostrules.ako.vmware.com",)


def test_kinds_that_arrive_are_watched_without_a_restart(api: ApiServer, connection: Connection) -> None:
    with watching(api, connection) as watched:
        changes = watched.changes
        api.store.serve(*GATEWAY_API)
        nginx = {"kind": "IngressClass", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "nginx"}}
        route = objects.http_route("a", hostnames=["a.example"])
        api.store.create_many([nginx, objects.gateway("public"), route])
        until_hostnames(watched, "a.example")
        assert watched.changes > changes
        until(lambda: [one.ref.name for one in watched.snapshot().gateways] == ["public"], "the Gateway")
        api.store.serve(*TRAEFIK)
        api.store.create(ingress_route("b.example"))
        until(lambda: len(watched.snapshot().controller_routes) == 1, "the IngressRoute")
        api.store.create(objects.http_route("c", hostnames=["c.example"]))
        until_hostnames(watched, "a.example", "c.example")
        # Read once, the cluster is the same.
        assert unordered(read_cluster(connection, NODE)) == unordered(watched.snapshot())


def test_namespaces_are_read_for_the_sake_of_gateways_alone(api: ApiServer, connection: Connection) -> None:
    """By their labels listeners choose."""
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "web", "labels": {"a": "b"}}}
    api.store.create(namespace)
    with watching(api, connection) as watched:
        assert watched.snapshot().namespaces == ()
        assert api.traffic.seen("*", "/api/v1/namespaces") == []
        api.store.serve(*GATEWAY_API)
        labels = {"a": "b", "kubernetes.io/metadata.name": "web"}
        until(lambda: [one.labels for one in watched.snapshot().namespaces] == [labels], "the labels")


def test_kinds_that_go_take_their_objects_with_them(api: ApiServer, connection: Connection) -> None:
    api.store.serve(*GATEWAY_API)
    api.store.create(objects.http_route("a"))
    with watching(api, connection) as watched:
        assert hostnames(watched) == ["www.example.com"]
        api.withdraw(*HTTP_ROUTES)
        until_hostnames(watched)
        until(lambda: coverage(watched) is KindState.ABSENT, "it to be told")
        assert watched.state(ROUTES).error is None
        until_looked(api, 2)
        asked = len(api.traffic.seen("list", "*/httproutes"))
        until_looked(api, 3)
        assert len(api.traffic.seen("list", "*/httproutes")) == asked
        api.store.serve(*HTTP_ROUTES)
        api.store.create(objects.http_route("b", hostnames=["b.example"]))
        until_hostnames(watched, "b.example")


def test_a_definition_that_is_made_again_between_two_polls_loses_nothing_and_keeps_nothing(
    api: ApiServer, connection: Connection
) -> None:
    """Discovery never saw it missing: the collection itself did."""
    api.store.serve(*GATEWAY_API)
    api.store.create(objects.http_route("a", hostnames=["a.example"]))
    with watching(api, connection) as watched:
        hold = faults.Hold()
        api.faults.add(hold, path="/apis", times=None)
        hold.wait_until_held()
        api.withdraw(*HTTP_ROUTES)
        until(lambda: "404" in (watched.state(ROUTES).error or ""), "its absence to be met")
        api.store.serve(*HTTP_ROUTES)
        api.store.create(objects.http_route("b", hostnames=["b.example"]))
        until_hostnames(watched, "b.example")
        until(lambda: coverage(watched) is KindState.KNOWN, "it to be watched again")


@pytest.mark.parametrize(
    ("served", "read"), [("v1beta1", "v1beta1"), ("v1 v1beta1", "v1"), ("v1beta1 v1", "v1"), ("v2", None)]
)
def test_the_best_version_that_can_be_read_is_taken(
    api: ApiServer, connection: Connection, served: str, read: str | None
) -> None:
    api.store.serve(*custom(GROUP, served, "HTTPRoute"))
    with watching(api, connection):
        paths = {seen.path for seen in api.traffic.seen("watch", "*/httproutes")}
    assert paths == ({f"/apis/{GROUP}/{read}/httproutes"} if read else set())


def test_a_better_version_is_moved_to_without_losing_anything(api: ApiServer, connection: Connection) -> None:
    """While the definitions are updated: the objects stay the same."""
    old, new = custom(GROUP, "v1beta1", "HTTPRoute"), custom(GROUP, "v1", "HTTPRoute")
    api.store.serve(*old)
    api.store.create(objects.http_route("a", version="v1beta1"))
    with watching(api, connection) as watched:
        lost: list[float] = []
        watched.on_change = lambda: lost.append(time.monotonic()) if not hostnames(watched) else None
        api.store.serve(*new)
        api.traffic.wait_for_requests("watch", f"/apis/{GROUP}/v1/httproutes")
        api.withdraw(*old)
        api.store.create(objects.http_route("b", hostnames=["b.example"]))
        until_hostnames(watched, "www.example.com", "b.example")
        assert lost == []


def test_a_kind_that_rbac_denies_is_reported_and_the_rest_is_served(
    api: ApiServer, connection: Connection
) -> None:
    """In the same words by the daemon and by a single look; until the permission is granted."""
    api.store.serve(*GATEWAY_API)
    api.store.create_many([objects.gateway("public"), objects.http_route("a"), objects.ingress("i")])
    api.access.allow_only(ALL_BUT_ROUTES)
    with watching(api, connection) as watched:
        assert watched.ingresses() == ["i"]
        assert len(watched.snapshot().gateways) == 1
        assert coverage(watched) is KindState.DENIED
        (told,) = watched.snapshot().not_covered
        assert told.startswith(f"{ROUTES} not covered: list /apis/{GROUP}/v1/httproutes")
        assert 'apiGroups: ["gateway.networking.k8s.io"], resources: ["httproutes"]' in told
        assert read_cluster(connection, NODE).not_covered == (told,)
        api.access.allow_all()
        until_hostnames(watched, "www.example.com")
        until(lambda: watched.snapshot().not_covered == (), "nothing left to tell")


@pytest.mark.parametrize("path", ["/apis", f"/apis/{GROUP}/v1"])
def test_a_discovery_that_rbac_denies_is_reported(api: ApiServer, connection: Connection, path: str) -> None:
    """A cluster whose administrators took system:discovery away."""
    api.store.serve(*GATEWAY_API)
    api.faults.add(faults.Answer(403), path=path, times=None)
    with watching(api, connection) as watched:
        (told,) = watched.snapshot().not_covered
        assert told.startswith("discovery ")
        assert told.endswith(f'a ClusterRole: {{nonResourceURLs: ["{path}"], verbs: ["get"]}}')
        assert coverage(watched, "discovery") is KindState.DENIED
        assert read_cluster(connection, NODE).not_covered == (told,)


@pytest.mark.parametrize(("held", "others"), [("ingresses", ROUTES), ("httproutes", "ingresses")])
def test_the_first_snapshot_waits_for_all_lists_those_of_optional_kinds_as_well(
    api: ApiServer, connection: Connection, held: str, others: str
) -> None:
    """Else each start of the agent would take names away."""
    api.store.serve(*GATEWAY_API)
    api.store.create(objects.http_route("a"))
    hold = faults.Hold()
    api.faults.add(hold, path=f"*/{held}", verbs={"list"})
    with watching(api, connection, synced=False) as watched:
        hold.wait_until_held()
        until(lambda: watched.state("services").synced and watched.state(others).synced, "the lists")
        assert watched.cluster.snapshot() is None
        hold.release()
        watched.until_synced()
        assert hostnames(watched) == ["www.example.com"]


def test_what_is_optional_holds_up_the_start_for_a_while_only(api: ApiServer, connection: Connection) -> None:
    """A conversion webhook that fails, say: it may do so for ever."""
    api.store.serve(*GATEWAY_API)
    api.store.create(objects.ingress("i"))
    api.faults.add(faults.Answer(500), path="*/httproutes", times=None)
    patience = Timing(backoff=QUICK.backoff, discovery=QUICK.discovery, optional_wait=0.3)
    with watching(api, connection, timing=patience, synced=False) as watched:
        watched.until_synced()
        assert watched.ingresses() == ["i"]
        until(lambda: "500" in (watched.state(ROUTES).error or ""), "the error")
        assert coverage(watched) is KindState.PENDING
        assert "500" in watched.snapshot().pending[ROUTES]
        assert "500" in read_cluster(connection, NODE).pending[ROUTES]
