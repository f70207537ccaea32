"""Who may do what, on the simulated API server and on a real one: both give the same answers."""

import json

import pytest

from tests.cases import cases_of
from tests.daemonset.manifests import DEPLOYMENTS, deployed

from .access import ANONYMOUS, DEFAULT_USER
from .answers import APPLY
from .resources import Object
from .servers import WRONG, Server
from .wire import exchange, request

CASES = cases_of(__file__, "cases.yaml")

_RBAC = "rbac.authorization.k8s.io"


def _granted(kind: str, metadata: Object, *rules: Object) -> list[Object]:
    """Build a role, and its binding to the limited user."""
    common = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": "limited", **metadata}}
    role = {"apiGroup": _RBAC, "kind": kind, "name": "limited"}
    user = {"kind": "ServiceAccount", "name": "nodeagent", "namespace": "kube-system"}
    binding = {"kind": f"{kind}Binding", "roleRef": role, "subjects": [user]}
    return [{**common, "kind": kind, "rules": list(rules)}, {**common, **binding}]


@pytest.fixture(scope="module")
def granted(server: Server) -> Server:
    """Provide a server on which the limited user has some rights."""
    services = {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]}
    node = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"], "resourceNames": ["n1"]}
    all_of_a_group = {"apiGroups": ["networking.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    own = {"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["a"], "verbs": ["get"]}
    everywhere = _granted("ClusterRole", {}, services, node, all_of_a_group)
    server.grant([*everywhere, *_granted("Role", {"namespace": "kube-system"}, own)])
    return server


@pytest.mark.parametrize(("asked", "code"), CASES["roles"])
def test_roles_hold_exactly(granted: Server, asked: str, code: int) -> None:
    method, path = asked.split()
    body = {"metadata": {"name": "x"}} if method == "POST" else None
    assert exchange(granted.limited, method, path, body)[0] == code


@pytest.mark.parametrize(("asked", "subject", "action"), CASES["forbidden"])
def test_what_no_rule_allows_is_forbidden(granted: Server, asked: str, subject: str, action: str) -> None:
    method, path = asked.split()
    status, refused = request(granted.limited, method, path, {} if method == "PATCH" else None)
    assert (status, refused["reason"], refused["code"]) == (403, "Forbidden", 403)
    where = 'in the namespace "default"' if "/namespaces/default" in asked else "at the cluster scope"
    assert refused["message"] == f'{subject} is forbidden: User "{DEFAULT_USER}" cannot {action} {where}'


def test_a_wrong_token_is_unauthorized_and_none_is_anonymous(server: Server) -> None:
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    words = {"message": "Unauthorized", "reason": "Unauthorized", "code": 401}
    assert request(server.peer(WRONG), "GET", "/api/v1/services") == (401, expected | words)
    for path, what in (
        ("/api/v1/services", f'services is forbidden: User "{ANONYMOUS}" cannot list resource'),
        ("/apis", f'forbidden: User "{ANONYMOUS}" cannot get path "/apis"'),
    ):
        status, refused = request(server.peer(""), "GET", path)
        assert (status, refused["reason"], what in refused["message"]) == (403, "Forbidden", True)
    assert exchange(server.peer(""), "GET", "/version")[0] == 200


def test_impersonation(granted: Server) -> None:
    """Who may impersonate has the other's rights, and no longer its own."""
    acting = {"Impersonate-User": DEFAULT_USER}
    for path, code in (("/api/v1/services", 200), ("/api/v1/secrets", 403)):
        assert request(granted.admin, "GET", path, headers=acting)[0] == code
    status, refused = request(granted.limited, "GET", "/api/v1/services", headers=acting)
    assert (status, refused["reason"]) == (403, "Forbidden")
    assert f'is forbidden: User "{DEFAULT_USER}" cannot impersonate' in refused["message"]


@pytest.mark.parametrize("kustomization", [*DEPLOYMENTS, "coredns", "doctor"])
def test_every_manifest_is_taken_with_strict_validation(server: Server, kustomization: str) -> None:
    """Applied as kubectl does it on the server's side, twice: the second time changes nothing."""
    versions: list[list[str]] = [[], []]
    # The user's own, of which nodeagent reads a relay Service.
    request(server.admin, "POST", "/api/v1/namespaces", {"metadata": {"name": "hairpin-proxy"}})
    for made in versions:
        for obj in deployed(kustomization):
            metadata = obj["metadata"]
            where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            group = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
            options = "fieldManager=kubectl&fieldValidation=Strict&force=true"
            path = f"{group}{where}/{obj['kind'].lower()}s/{metadata['name']}?{options}"
            status, answer = request(server.admin, "PATCH", path, json.dumps(obj), {"Content-Type": APPLY})
            assert status in {200, 201}, answer
            made.append(answer["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]
