"""The cluster's API as the acceptance steps use it: objects in, objects out, by a kubeconfig."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import official
from nodeagent.sources.kubernetes.errors import ApiRequest
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.daemonset.kustomize import Object

_SECONDS = 30.0
_NOT_FOUND = 404
_PLURALS = {
    "Namespace": "namespaces",
    "Node": "nodes",
    "Pod": "pods",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}


class ApiRefusalError(WorldError):
    """The server refused.

    Args:
        status: The HTTP status.
        text: What was asked and answered.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class KubeApi:
    """One API server; may be used by several threads.

    Args:
        kubeconfig: How it is reached, with rights to make and delete all that is installed.

    Raises:
        WorldError: The file gives no way to a server; any method: the server can't be reached, or refuses.
    """

    def __init__(self, kubeconfig: Path) -> None:
        try:
            self._client = official.new_client(str(kubeconfig))
        except SourceError as error:
            raise WorldError(str(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.rest_client.pool_manager.clear()

    def create(self, obj: Object) -> Object:
        """Create an object; one that exists already is an ApiRefusalError."""
        return self._ask("POST", _collection(obj), obj)

    def read(self, obj: Object) -> Object | None:
        """Read the object of that kind and name; None when there is none."""
        try:
            return self._ask("GET", _path(obj))
        except ApiRefusalError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def patch(self, obj: Object, change: Object) -> Object:
        """Change an object by a JSON merge patch."""
        return self._ask("PATCH", _path(obj), change, "application/merge-patch+json")

    def delete(self, obj: Object) -> bool:
        """Delete an object after all that it owns; returns whether it was there."""
        try:
            self._ask("DELETE", _path(obj), {"propagationPolicy": "Foreground"})
        except ApiRefusalError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return True

    def _ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        headers = {"Accept": "application/json", "Content-Type": kind}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        server = self._client.configuration.host
        try:
            response = official.translated(
                ApiRequest(method, path, server),
                lambda: self._client.rest_client.pool_manager.request(
                    method,
                    server + path,
                    body=None if body is None else json.dumps(body),
                    headers=headers,
                    timeout=_SECONDS,
                ),
            )
        except SourceError as error:
            raise WorldError(str(error)) from error
        if response.status >= 300:
            told = response.data.decode("utf-8", "replace")
            raise ApiRefusalError(response.status, f"{method} {path}: {response.status} {told}")
        answer: Object = json.loads(response.data)
        return answer


def _collection(obj: Object) -> str:
    version = obj["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = obj["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{inside}/{_PLURALS[obj['kind']]}"


def _path(obj: Object) -> str:
    return f"{_collection(obj)}/{obj['metadata']['name']}"
