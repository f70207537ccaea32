"""An upgrade to other values and back: by Helm itself, on a simulated and on a real API.

The real one is asked where `KUBE_APISERVER=` and `ETCD=` name the programs; it rejects what may not change.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from release.schemas import CHART
from tests.apiserver import ApiServer
from tests.apiserver.server import self_signed, write_kubeconfig
from tests.apiserver.servers import ADMIN, ETCD, KUBE_APISERVER, real
from tests.apiserver.wire import Peer, request
from tests.charts.rendering import IMAGE, helm
from tests.charts.test_chart import EVERYTHING
from tests.daemonset.kustomize import Object

_PLACES = (
    *("api/v1/configmaps", "api/v1/serviceaccounts", "apis/apps/v1/daemonsets", "apis/apps/v1/deployments"),
    *("apis/rbac.authorization.k8s.io/v1/roles", "apis/rbac.authorization.k8s.io/v1/rolebindings"),
    "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)
_CONTENT = ("spec", "data", "rules", "roleRef", "subjects")
_DEFAULTS: dict[str, Any] = {"image": IMAGE, "uninstall": {"cleanUp": False}}
"""Without the Job, whose part no test takes here."""


@pytest.fixture(scope="module", params=["simulated", "real"])
def admin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Each API server in turn, as its administrator."""
    folder = tmp_path_factory.mktemp("api")
    if request.param == "simulated":
        tls = self_signed(folder, "127.0.0.1")  # Helm sends no token without TLS
        with ApiServer(tls=tls) as api:
            api.access.require_token(ADMIN, "admin")
            yield Peer(api.port, ADMIN, ssl.create_default_context(cafile=str(tls.authority)))
    elif not (KUBE_APISERVER and ETCD):
        pytest.skip("KUBE_APISERVER= and ETCD= are not given: no real kube-apiserver")
    else:
        with real(folder) as server:
            yield server.admin


@pytest.fixture
def engine(admin: Peer, tmp_path: Path) -> Iterator[Any]:
    """Helm, in a cluster with the release's namespace."""
    request(admin, "POST", "/api/v1/namespaces", {"metadata": {"name": "nodeagent"}})
    server = {"server": f"https://127.0.0.1:{admin.port}", "insecure-skip-tls-verify": True}
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server, admin.token)
    config = helm.Config(kubeconfig_path=str(kubeconfig), namespace="nodeagent", storage_driver="memory")
    yield config
    config.close()


def _state(admin: Peer) -> dict[tuple[str, str, str], Object]:
    """Return the content of each object of the release."""
    return {
        (place, one["metadata"].get("namespace", ""), one["metadata"]["name"]): {
            part: one[part] for part in _CONTENT if part in one
        }
        for place in _PLACES
        for one in request(admin, "GET", f"/{place}")[1]["items"]
        if one["metadata"].get("labels", {}).get("helm.sh/chart")
    }


@pytest.mark.long
def test_an_upgrade_ends_where_an_installation_does_and_a_rollback_where_it_began(
    admin: Peer,
    engine: Any,  # noqa: ANN401 - the SDK's Config
) -> None:
    changed = {**EVERYTHING, **_DEFAULTS}
    engine.install(str(CHART), "nodeagent", changed, timeout=60)
    new = _state(admin)
    engine.uninstall("nodeagent", timeout=60)
    assert _state(admin) == {}

    engine.install(str(CHART), "nodeagent", _DEFAULTS, timeout=60)
    before = _state(admin)
    engine.upgrade(str(CHART), "nodeagent", changed, timeout=60)
    assert _state(admin) == new != before
    # A real API server rejects a change of these.
    for key in before.keys() & new.keys():
        assert before[key].get("roleRef") == new[key].get("roleRef"), key
        if "template" in before[key].get("spec", {}):
            assert before[key]["spec"]["selector"] == new[key]["spec"]["selector"], key
    engine.rollback("nodeagent", timeout=60)
    assert _state(admin) == before
    engine.uninstall("nodeagent", timeout=60)
