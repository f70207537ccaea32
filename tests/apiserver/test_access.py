"""Who may do what, on the simulated API server and on a real one: both give the same answers."""

import json

import pytest
import yaml

from tests.daemonset.manifests import DEPLOYMENTS, deployed

from .access import DEFAULT_USER
from .servers import Server
from .wire import exchange, request

_APPLY = {"Content-Type": "application/apply-patch+yaml"}
ROLES = """
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: limited}
rules:
  - {apiGroups: [""], resources: [services], verbs: [list, watch]}
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch], resourceNames: [n1]}
  - {apiGroups: [networking.k8s.io], resources: ["*"], verbs: ["*"]}
---
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: limited, namespace: kube-system}
rules:
  - {apiGroups: [apps], resources: [daemonsets], resourceNames: [nodeagent], verbs: [get]}
---
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: limited}
subjects: [{kind: ServiceAccount, name: nodeagent, namespace: kube-system}]
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: limited, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{kind: ServiceAccount, name: nodeagent, namespace: kube-system}]
"""


@pytest.fixture(scope="module")
def granted(server: Server) -> Server:
    """Provide a server on which the limited user has these roles."""
    server.grant(list(yaml.safe_load_all(ROLES)))
    return server


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/services", 200),
        ("GET", "/api/v1/namespaces/default/services", 200),
        ("GET", "/api/v1/namespaces/default/services/web", 403),
        # resourceNames: by path, or by the fieldSelector that names exactly this object.
        ("GET", "/api/v1/nodes/n1", 404),
        ("GET", "/api/v1/nodes/n2", 403),
        ("GET", "/api/v1/nodes", 403),
        ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1", 200),
        ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn2", 403),
        ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn2&watch=1", 403),
        ("DELETE", "/apis/networking.k8s.io/v1/namespaces/default/ingresses/x", 404),
        # A Role holds in its namespace alone.
        ("GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/nodeagent", 404),
        ("GET", "/apis/apps/v1/namespaces/default/daemonsets/nodeagent", 403),
        ("POST", "/api/v1/namespaces/default/events", 403),
        # Every authenticated user may read what exists, and nothing else that is not an object.
        ("GET", "/apis", 200),
        ("GET", "/version", 200),
        ("GET", "/apis/networking.k8s.io/v1", 200),
        ("GET", "/metrics", 403),
        ("GET", "/nothing", 403),
        ("GET", "/api/v1/wonders", 403),
    ],
)
def test_roles_hold_exactly(granted: Server, method: str, path: str, code: int) -> None:
    body = {"metadata": {"name": "x"}} if method == "POST" else None
    assert exchange(granted.limited, method, path, body)[0] == code


@pytest.mark.parametrize(
    ("asked", "subject", "action"),
    [
        ("GET deployments", "deployments.apps", 'list resource "deployments" in API group "apps" {cluster}'),
        ("GET services/web", 'services "web"', 'get resource "services" in API group "" {namespace}'),
        ("PATCH nodes/n1/status", 'nodes "n1"', 'patch resource "nodes/status" in API group "" {cluster}'),
        ("GET pods/x/exec", 'pods "x"', 'get resource "pods/exec" in API group "" {namespace}'),
    ],
)
def test_what_no_rule_allows_is_forbidden(granted: Server, asked: str, subject: str, action: str) -> None:
    method, plural = asked.split()
    base = "/apis/apps/v1/" if "apps" in action else "/api/v1/"
    base += "namespaces/default/" if "{namespace}" in action else ""
    status, refused = request(granted.limited, method, base + plural, {} if method == "PATCH" else None)
    assert (status, refused["reason"], refused["code"]) == (403, "Forbidden", 403)
    cannot = action.format(namespace='in the namespace "default"', cluster="at the cluster scope")
    assert refused["message"] == f'{subject} is forbidden: User "{DEFAULT_USER}" cannot {cannot}'


def test_a_wrong_token_is_unauthorized_and_none_is_anonymous(server: Server) -> None:
    status, refused = request(server.stranger, "GET", "/api/v1/services")
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    words = {"message": "Unauthorized", "reason": "Unauthorized", "code": 401}
    assert (status, refused) == (401, expected | words)
    for path, what in (
        ("/api/v1/services", 'services is forbidden: User "system:anonymous" cannot list resource'),
        ("/apis", 'forbidden: User "system:anonymous" cannot get path "/apis"'),
    ):
        status, refused = request(server.anonymous, "GET", path)
        assert (status, refused["reason"]) == (403, "Forbidden")
        assert what in refused["message"]
    assert exchange(server.anonymous, "GET", "/version")[0] == 200


def test_impersonation(granted: Server) -> None:
    """Who may impersonate has the other's rights, and no longer its own."""
    acting = {"Impersonate-User": DEFAULT_USER}
    for path, code in (("/api/v1/services", 200), ("/api/v1/secrets", 403)):
        assert request(granted.admin, "GET", path, headers=acting)[0] == code
    acting = {"Impersonate-User": "admin"}
    status, refused = request(granted.limited, "GET", "/api/v1/services", headers=acting)
    assert (status, refused["reason"]) == (403, "Forbidden")
    assert f'is forbidden: User "{DEFAULT_USER}" cannot impersonate' in refused["message"]


@pytest.mark.parametrize("kustomization", [*DEPLOYMENTS, "coredns", "doctor"])
def test_every_manifest_is_taken_with_strict_validation(server: Server, kustomization: str) -> None:
    """Applied as kubectl does it on the server's side, twice: the second time changes nothing."""
    versions = []
    # The user's own, of which nodeagent reads a relay Service.
    request(server.admin, "POST", "/api/v1/namespaces", {"metadata": {"name": "hairpin-proxy"}})
    for _ in range(2):
        for obj in deployed(kustomization):
            metadata = obj["metadata"]
            where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            group = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
            options = "fieldManager=kubectl&fieldValidation=Strict&force=true"
            path = f"{group}{where}/{obj['kind'].lower()}s/{metadata['name']}?{options}"
            status, answer = request(server.admin, "PATCH", path, json.dumps(obj), _APPLY)
            assert status in {200, 201}, answer
            versions.append(answer["metadata"]["resourceVersion"])
    half = len(versions) // 2
    assert versions[:half] == versions[half:]
