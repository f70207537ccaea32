"""Ingress controllers' ConfigMaps: those that are named and no others, now and later."""

from nodeagent.sources.kubernetes.cluster import read_cluster
from nodeagent.sources.kubernetes.connection import Connection
from tests.apiserver import ApiServer, faults, objects

from .watching import NODE, Watched, until, watching

CONTROLLER = ("ingress-nginx", "controller")
OTHER = ("other", "controller")
PATH = "/api/v1/namespaces/ingress-nginx/configmaps"


def config_map(namespace: str, value: str, name: str = "controller") -> dict[str, object]:
    """A ConfigMap as ingress-nginx's chart makes it."""
    return objects.config_map(name, namespace, {"use-proxy-protocol": value})


def told(watched: Watched) -> dict[str, str]:
    """What each ConfigMap of the snapshot says."""
    return {found.ref.path: found.data["use-proxy-protocol"] for found in watched.snapshot().config_maps}


def test_only_the_named_one_is_asked_for(api: ApiServer, connection: Connection) -> None:
    """A namespace's others are not read; without a name none is, so that the agent needs no right to."""
    api.store.create(config_map("ingress-nginx", "true"))
    api.store.create(config_map("ingress-nginx", "true", "unrelated"))
    assert read_cluster(connection, NODE).config_maps == ()
    assert api.traffic.seen("list", "*/configmaps") == []
    snapshot = read_cluster(connection, NODE, config_maps=[CONTROLLER])
    assert [found.ref.path for found in snapshot.config_maps] == ["ingress-nginx/controller"]
    (request,) = api.traffic.seen("list", "*/configmaps")
    assert (request.path, request.query["fieldSelector"]) == (PATH, "metadata.name=controller")


def test_changes_of_it_are_seen(api: ApiServer, connection: Connection) -> None:
    """Added, changed, deleted."""
    with watching(api, connection, config_maps=(CONTROLLER,)) as watched:
        assert told(watched) == {}
        api.store.create(config_map("ingress-nginx", "true"))
        until(lambda: told(watched) == {"ingress-nginx/controller": "true"}, "the ConfigMap")
        api.store.apply(config_map("ingress-nginx", "false"))
        until(lambda: told(watched) == {"ingress-nginx/controller": "false"}, "its change")
        api.store.delete("configmaps", "controller", "ingress-nginx")
        until(lambda: told(watched) == {}, "its end")


def test_what_is_watched_follows_the_configuration(api: ApiServer, connection: Connection) -> None:
    """Another name takes its place while the agent runs."""
    api.store.create(config_map("ingress-nginx", "true"))
    api.store.create(config_map("other", "false"))
    with watching(api, connection, config_maps=(CONTROLLER,)) as watched:
        watched.cluster.watch_config_maps([OTHER])
        until(lambda: told(watched) == {"other/controller": "false"}, "the other one alone")
        names = [state.name for state in watched.cluster.states()]
        assert [name for name in names if name.startswith("configmap")] == ["configmap other/controller"]
        watched.cluster.watch_config_maps([])
        assert told(watched) == {}


def test_one_that_may_not_be_read_later_holds_nothing_up(api: ApiServer, connection: Connection) -> None:
    """The rest is served as before; status says which right is missing."""
    with watching(api, connection) as watched:
        api.faults.add(faults.Answer(403), path="*/configmaps", times=None)
        watched.cluster.watch_config_maps([CONTROLLER])
        until(lambda: watched.state("configmap ingress-nginx/controller").error is not None, "the refusal")
        error = watched.state("configmap ingress-nginx/controller").error
        assert error is not None
        assert 'a Role in namespace ingress-nginx: {apiGroups: [""], resources: ["configmaps"]' in error
        api.store.create(objects.ingress("a", hosts=["a.example"]))
        watched.until_ingresses("a")
