"""The same client against a real kube-apiserver over etcd, where they are given.

tests/apiserver/servers.py says how.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.observe.event_recorder import PendingEvent, post_event
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.credentials import service_account
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError, UnauthorizedError
from nodeagent.sources.kubernetes.single_requests import ask_cluster, is_going
from tests.apiserver import objects
from tests.apiserver.access import DEFAULT_USER
from tests.apiserver.server import write_kubeconfig
from tests.apiserver.servers import ADMIN, ETCD, KUBE_APISERVER, LIMITED, WRONG, Server, real
from tests.apiserver.wire import exchange
from tests.apiserver.wire import request as requested
from tests.cases import cases_of
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.skipif(not (KUBE_APISERVER and ETCD), reason="KUBE_APISERVER and ETCD are not given")
_INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("kube-apiserver")
    with real(folder) as running:
        yield running, folder


def _connected(server: tuple[Server, Path], token: str) -> Connection:
    running, folder = server
    cluster = {
        "server": f"https://127.0.0.1:{running.admin.port}",
        "certificate-authority": "apiserver.crt",
        "tls-server-name": "kubernetes.default.svc",
    }
    return connect(write_kubeconfig(folder / f"{token}.kubeconfig", cluster, token))


def test_what_it_answers(server: tuple[Server, Path]) -> None:
    gone = ObjectRef("DaemonSet", "default", "nodeagent")
    with _connected(server, ADMIN) as connection:
        answers = ask_cluster(connection)
        assert answers.version.startswith("v1.")
        assert (
            post_event(
                connection, PendingEvent(ObjectRef("Service", "default", "kubernetes"), "Test", "text")
            )
            is None
        )
        assert is_going(connection, gone)
        with pytest.raises(NotFoundError, match='pods "none" not found'):
            connection.execute("/api/v1/namespaces/default/pods/none", "c", ["true"], timeout=30)
    with (
        _connected(server, LIMITED) as connection,
        pytest.raises(ForbiddenError, match=r'resources: \["ingresses"\], verbs: \["list", "watch"\]'),
    ):
        connection.get_json(_INGRESSES)
    with _connected(server, WRONG) as connection, pytest.raises(UnauthorizedError, match="401"):
        connection.get_json(_INGRESSES)


_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_SECRETS = "/api/v1/namespaces/default/secrets"


def test_a_day_of_rotated_tokens(server: tuple[Server, Path]) -> None:
    """Each ends with the Secret that it is bound to, once the server no longer remembers it (10 s)."""
    running, folder = server
    (folder / "ca.crt").write_bytes((folder / "apiserver.crt").read_bytes())
    user = {"kind": "ServiceAccount", "namespace": "default", "name": "rotating"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    running.grant([{**binding, "metadata": {"name": "rotating"}, "roleRef": role, "subjects": [user]}])
    assert requested(running.admin, "POST", _ACCOUNTS, {"metadata": {"name": "rotating"}})[0] == 201

    def rotate(hour: int) -> str:
        name = f"hour-{hour}"
        bound = requested(running.admin, "POST", _SECRETS, {"metadata": {"name": name}})[1]["metadata"]
        reference = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": bound["uid"]}
        asked = {"spec": {"expirationSeconds": 3600, "boundObjectRef": reference}}
        answer = requested(running.admin, "POST", f"{_ACCOUNTS}/rotating/token", asked)[1]
        found: str = answer["status"]["token"]
        (folder / "token").write_text(found, encoding="ascii")
        return found

    def are_rejected(tokens: list[str]) -> bool:
        peers = (replace(running.admin, token=token) for token in tokens)
        return all(requested(peer, "GET", _INGRESSES)[0] == 401 for peer in peers)

    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(running.admin.port)}
    tokens = [rotate(0)]
    with Connection(lambda: service_account(environment, folder)) as connection:
        for hour in range(1, 25):
            connection.get_json(_INGRESSES)
            ended = list(tokens)
            tokens.append(rotate(hour))
            requested(running.admin, "DELETE", f"{_SECRETS}/hour-{hour - 1}")
            connection.get_json(_INGRESSES)
            if hour % 6 == 0:
                wait_until(partial(are_rejected, ended), "the tokens to end", seconds=30, every=0.5)
        connection.get_json(_INGRESSES)


_ROUTES = "httproutes.gateway.networking.k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_REQUIRED = [("", "services"), ("", "nodes"), ("networking.k8s.io", "*"), ("discovery.k8s.io", "*")]


def _is_complete(found: Snapshot | None) -> bool:
    return found is not None and all(
        (found.ingresses, found.routes, found.service_ranges, found.api_servers, not found.not_covered)
    )


def _takes_nothing(found: Snapshot) -> bool:
    """Whether what is decided by it removes nothing: what is not complete is pending."""
    return _ROUTES in found.pending or _is_complete(found)


def test_a_server_that_is_restarted_takes_nothing_away(server: tuple[Server, Path]) -> None:
    """Neither from an agent that runs, nor from those that start before it answers."""
    running, _ = server
    assert (
        requested(running.admin, "POST", _DEFINITIONS, cases_of(__file__, "cases.yaml")["definition"])[0]
        == 201
    )
    routes = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes"
    wait_until(lambda: exchange(running.admin, "GET", routes)[0] == 200, "the kind", seconds=30, every=0.1)
    ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    assert requested(running.admin, "POST", routes, objects.http_route("a"))[0] == 201
    assert requested(running.admin, "POST", ingresses, objects.ingress("i"))[0] == 201
    rights = [*_REQUIRED, ("gateway.networking.k8s.io", "*")]
    rules = [{"apiGroups": [group], "resources": [one], "verbs": ["list", "watch"]} for group, one in rights]
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": DEFAULT_USER}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    binding = {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [user], **rbac}
    running.grant([{"kind": "ClusterRole", "rules": rules, **rbac}, binding])
    seen: list[Snapshot] = []

    def watch(connection: Connection, stack: ExitStack) -> Cluster:
        cluster = Cluster(connection, "n1")
        cluster.start()
        stack.callback(cluster.stop)
        return cluster

    with ExitStack() as stack:
        connection = stack.enter_context(_connected(server, LIMITED))
        agents = [watch(connection, stack)]
        wait_until(lambda: _is_complete(agents[0].snapshot()), "the first snapshot", seconds=60)
        for _ in range(3):
            running.restart()
            agents.append(watch(connection, stack))

            def settled() -> bool:
                found = [each.snapshot() for each in agents]
                seen.extend(each for each in found if each is not None and not _takes_nothing(each))
                return all(map(_is_complete, found)) and not any(
                    state.error for each in agents for state in each.states()
                )

            wait_until(settled, "all to be read", seconds=90, every=0.005)
    assert seen == []
