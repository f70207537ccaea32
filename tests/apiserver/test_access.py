"""Tokens and RBAC rules."""

import pytest
import yaml

from .access import ANONYMOUS, DEFAULT_USER, Rule, rules_bound_to, rules_from_yaml
from .objects import daemon_set, node, service
from .server import ApiServer
from .wire import request

ROLES = """
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: nodeagent}
rules:
  - {apiGroups: [""], resources: [services], verbs: [list, watch]}
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch], resourceNames: [n1]}
  - {apiGroups: [networking.k8s.io], resources: ["*"], verbs: ["*"]}
  - {nonResourceURLs: [/metrics], verbs: [get]}
---
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: nodeagent, namespace: kube-system}
rules:
  - {apiGroups: [apps], resources: [daemonsets], resourceNames: [nodeagent], verbs: [get]}
"""
BINDINGS = """
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: nodeagent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodeagent}
subjects: [{kind: ServiceAccount, name: nodeagent, namespace: kube-system}]
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: nodeagent, namespace: other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodeagent}
subjects: [{kind: ServiceAccount, name: visitor, namespace: default}]
"""


def bearer(token: str) -> dict[str, str]:
    """Give the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def test_a_wrong_token_is_unauthorized_and_none_is_anonymous(api: ApiServer) -> None:
    api.access.require_token("good")
    assert request(api, "GET", "/api/v1/services", headers=bearer("good"))[0] == 200
    status, refused = request(api, "GET", "/api/v1/services", headers=bearer("bad"))
    unauthorized = {"message": "Unauthorized", "reason": "Unauthorized", "code": 401}
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert (status, refused) == (401, expected | unauthorized)
    status, refused = request(api, "GET", "/api/v1/services")
    assert status == 403
    assert f'User "{ANONYMOUS}" cannot list' in refused["message"]
    assert request(api, "GET", "/version")[0] == 200
    api.access.revoke_token("good")
    api.access.require_token("better")
    assert request(api, "GET", "/api/v1/services", headers=bearer("good"))[0] == 401


@pytest.mark.parametrize(
    ("method", "path", "subject", "action"),
    [
        (
            "GET",
            "/apis/networking.k8s.io/v1/ingresses",
            "ingresses.networking.k8s.io",
            'list resource "ingresses" in API group "networking.k8s.io" at the cluster scope',
        ),
        (
            "GET",
            "/api/v1/namespaces/default/services/web",
            'services "web"',
            'get resource "services" in API group "" in the namespace "default"',
        ),
        (
            "PATCH",
            "/api/v1/nodes/n1/status",
            'nodes "n1"',
            'patch resource "nodes/status" in API group "" at the cluster scope',
        ),
    ],
)
def test_what_no_rule_allows_is_forbidden(
    api: ApiServer, method: str, path: str, subject: str, action: str
) -> None:
    api.access.allow_only([Rule([""], ["nodes"], ["get", "list", "watch", "patch"])])
    status, refused = request(api, method, path, {} if method == "PATCH" else None)
    assert (status, refused["reason"], refused["code"]) == (403, "Forbidden", 403)
    assert refused["message"] == f'{subject} is forbidden: User "{DEFAULT_USER}" cannot {action}'


def test_rules_of_real_roles_hold_exactly(api: ApiServer) -> None:
    api.store.create_many([service("web"), node("n1"), node("n2"), daemon_set("nodeagent")])
    api.access.allow_only(rules_from_yaml(ROLES))

    def code(path: str, method: str = "GET") -> int:
        return request(api, method, path, {"metadata": {"name": "x"}} if method == "POST" else None)[0]

    assert code("/api/v1/services") == 200
    assert code("/api/v1/namespaces/default/services") == 200
    assert code("/api/v1/namespaces/default/services/web") == 403
    # resourceNames: by path, or by the fieldSelector that names exactly this object.
    assert code("/api/v1/nodes/n1") == 200
    assert code("/api/v1/nodes/n2") == 403
    assert code("/api/v1/nodes") == 403
    assert code("/api/v1/nodes?fieldSelector=metadata.name%3Dn1") == 200
    assert code("/api/v1/nodes?fieldSelector=metadata.name%3Dn2") == 403
    assert code("/api/v1/nodes?fieldSelector=metadata.name%3Dn2&watch=1") == 403
    assert code("/apis/networking.k8s.io/v1/namespaces/default/ingresses", "POST") == 201
    # A Role holds in its namespace alone.
    assert code("/apis/apps/v1/namespaces/kube-system/daemonsets/nodeagent") == 200
    assert code("/apis/apps/v1/namespaces/default/daemonsets/nodeagent") == 403
    assert code("/api/v1/namespaces/default/events", "POST") == 403
    api.access.allow_all()
    assert code("/api/v1/nodes") == 200


def test_bindings_say_whom_a_role_is_for_and_where() -> None:
    documents = list(yaml.safe_load_all(ROLES + "---" + BINDINGS))
    bound = rules_bound_to(documents, "kube-system", "nodeagent")
    assert {rule.namespace for rule in bound} == {None}
    # The Role has no binding: it grants nothing.
    assert not any("daemonsets" in rule.resources for rule in bound)
    assert {rule.namespace for rule in rules_bound_to(documents, "default", "visitor")} == {"other"}
    assert rules_bound_to(documents, "default", "nodeagent") == []
