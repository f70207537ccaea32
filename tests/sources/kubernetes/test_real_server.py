"""The same client against a real kube-apiserver over etcd, where they are given.

tests/apiserver/servers.py says how.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.credentials import service_account
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError, UnauthorizedError
from nodeagent.sources.kubernetes.single_requests import ask_cluster, is_going, post_event
from tests.apiserver.server import write_kubeconfig
from tests.apiserver.servers import ADMIN, ETCD, KUBE_APISERVER, LIMITED, WRONG, Server, real
from tests.apiserver.wire import request as requested
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
        assert post_event(connection, ObjectRef("Service", "default", "kubernetes"), "Test", "text") is None
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
