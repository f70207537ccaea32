"""From the first chart of the history to this one and back: by Helm itself, on a simulated and on a real API.

The real one is asked where `KUBE_APISERVER=` and `ETCD=` name the programs; it rejects what may not change.
"""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.schemas import CHART
from tests.apiserver import ApiServer
from tests.apiserver.server import Tls
from tests.apiserver.servers import ADMIN, ETCD, KUBE_APISERVER, real
from tests.apiserver.wire import Peer, request
from tests.charts.rendering import IMAGE, everything, helm
from tests.daemonset.kustomize import Object
from tests.daemonset.manifests import configuration, pod
from tests.testbed.certificates import make_certificate

_ROOT = CHART.parents[1]
_PLACES = (
    *("api/v1/configmaps", "api/v1/serviceaccounts", "apis/apps/v1/daemonsets", "apis/apps/v1/deployments"),
    *("apis/policy/v1/poddisruptionbudgets", "apis/rbac.authorization.k8s.io/v1/roles"),
    *("apis/rbac.authorization.k8s.io/v1/rolebindings", "apis/rbac.authorization.k8s.io/v1/clusterroles"),
    "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)
_CONTENT = ("spec", "data", "rules", "roleRef", "subjects")
_DEFAULTS: dict[str, Any] = {"uninstall": {"cleanUp": False}}
"""Without the Job, whose part no test takes here."""

# A value of each kind that the first chart had, none as by default.
_OF_THE_FIRST_CHART: dict[str, Any] = {
    "config": {
        "loadBalancers": {"controllerConfigMaps": [{"namespace": "edge", "name": "controller"}]},
        "hosts": {"allow": ["corp.example.com"]},
    },
    "image": {**IMAGE, "tag": "0.0.9", "pullPolicy": "Always"},
    "imagePullSecrets": ["pull"],
    "agent": {"resources": {"limits": {"memory": "300Mi"}}},
    "relay": {
        "image": {"repository": "haproxy", "tag": "3.0.11"},
        "resources": {"limits": {"memory": "2Gi"}},
    },
    "terminationGracePeriodSeconds": 900,
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "nodeSelector": {"pool": "edge"},
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/team": "edge"},
    "podLabels": {"team": "edge"},
    "adopt": True,
    "hostsFileOnly": True,
    "selinux": True,
    "metrics": {"enabled": True, "ipv6": True, "dashboard": True, "labels": {"team": "edge"}},
    "coredns": {"enabled": True, "replicas": 3},
    "uninstall": {"cleanUp": False, "timeoutSeconds": 300},
}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, check=False).stdout


@pytest.fixture(scope="module")
def first_chart(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The chart of the commit that added it, with the manifests that it links to."""
    if _git("rev-parse", "--is-shallow-repository").strip() != b"false":
        pytest.skip("the first chart is in the history, which is not here")
    added = _git("log", "--diff-filter=A", "--format=%H", "--", "charts/nodeagent/Chart.yaml").split()[-1]
    folder = tmp_path_factory.mktemp("first")
    tree = _git("archive", added.decode(), "charts", "daemonset")
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=tree, check=True)
    return str(folder / "charts" / "nodeagent")


@pytest.fixture(scope="module", params=["simulated", "real"])
def admin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Each API server in turn, as its administrator."""
    folder = tmp_path_factory.mktemp("api")
    if request.param == "simulated":
        certificate, key = folder / "api.crt", folder / "api.key"
        make_certificate(certificate, key, "127.0.0.1")  # Helm sends no token without TLS
        with ApiServer(tls=Tls(certificate, key, certificate)) as api:
            api.access.require_token(ADMIN, "admin")
            yield Peer(api.port, ADMIN, ssl.create_default_context(cafile=str(certificate)))
    elif not (KUBE_APISERVER and ETCD):
        pytest.skip("KUBE_APISERVER= and ETCD= are not given: no real kube-apiserver")
    else:
        with real(folder) as server:
            yield server.admin


@pytest.fixture
def engine(admin: Peer, tmp_path: Path) -> Iterator[Any]:
    """Helm, in a cluster with the namespaces that the values name."""
    for name in ("nodeagent", "edge"):
        request(admin, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    server = {"server": f"https://127.0.0.1:{admin.port}", "insecure-skip-tls-verify": True}
    kubeconfig: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": admin.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    config = helm.Config(
        kubeconfig_path=str(tmp_path / "kubeconfig"), namespace="nodeagent", storage_driver="memory"
    )
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
@pytest.mark.parametrize("reuse", [False, True], ids=["values given again", "--reuse-values"])
@pytest.mark.parametrize("values", [_DEFAULTS, _OF_THE_FIRST_CHART], ids=["defaults", "all values"])
def test_an_upgrade_ends_where_an_installation_does_and_a_rollback_where_it_began(
    admin: Peer,
    engine: Any,  # noqa: ANN401 - the SDK's Config
    first_chart: str,
    values: dict[str, Any],
    *,
    reuse: bool,
) -> None:
    given = {"image": IMAGE, **values}
    engine.install(str(CHART), "nodeagent", given, timeout=60)
    new = _state(admin)
    engine.uninstall("nodeagent", timeout=60)
    assert _state(admin) == {}

    engine.install(first_chart, "nodeagent", given, timeout=60)
    before = _state(admin)
    engine.upgrade(str(CHART), "nodeagent", {} if reuse else given, timeout=60, reuse_values=reuse)
    assert _state(admin) == new
    # A real API server rejects a change of these.
    for key in before.keys() & new.keys():
        assert before[key].get("roleRef") == new[key].get("roleRef"), key
        if "template" in before[key].get("spec", {}):
            assert before[key]["spec"]["selector"] == new[key]["spec"]["selector"], key
    engine.rollback("nodeagent", timeout=60)
    assert _state(admin) == before
    engine.uninstall("nodeagent", timeout=60)


def test_values_of_the_first_chart_have_their_effect() -> None:
    found = everything(_OF_THE_FIRST_CHART)
    spec = pod(found)
    assert "corp.example.com" in configuration(found)
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["terminationGracePeriodSeconds"] == 900
    # README.md, "Upgrade": the relay's own image is ignored.
    assert {one["image"] for one in spec["containers"]} == {"nodeagent:0.0.9"}


def test_the_value_that_was_renamed_is_rejected_with_its_place() -> None:
    with pytest.raises(helm.HelmError, match="/config/loadBalancers/ipMode"):
        everything({"config": {"loadBalancers": {"ipMode": "honour"}}})
