"""What the cluster of the virtual machines runs, as one List for `kubectl apply -f -`; needs PyYAML.

    python3 -m tests.testbed.vagrant.manifests CERTIFICATES

The Service and the Ingresses are those of tests/testbed/manifests; nginx and the registry are configured as
in the namespaces. Not here: nodeagent itself.
"""

from __future__ import annotations

import base64
import json
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.addresses import REGISTRY_PORT
from tests.testbed.certificates import Certificates
from tests.testbed.ingress_nginx import nginx_configuration
from tests.testbed.registry import registry_configuration
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.vagrant.render import settings

Object = dict[str, Any]

IMAGE = "localhost/testbed:1"
"""What files.sh builds: every node has it before it joins."""
REGISTRY_CLUSTER_IP = IPv4Address("10.96.0.50")

_SHARED = Path(__file__).parents[1] / "manifests"
_INGRESS_NGINX = INGRESS_SERVICE.namespace
_MOUNT = Path("/etc/testbed")
_TEMPORARY = Path("/tmp/testbed")  # noqa: S108 - in a container, a volume of its own
_ON_CP = {"node-role.kubernetes.io/control-plane": "true"}
_MEANT_FOR_CP = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]


def manifests(certificates: Path, load_balancer: str) -> list[Object]:
    """Return all objects.

    Args:
        certificates: The directory that render.py filled.
        load_balancer: The address for statuses.
    """
    return [
        *(_object("v1", "Namespace", name) for name in (_INGRESS_NGINX, "registry", "lb-address")),
        *_ingress_controller(certificates),
        *_registry(),
        *lb_address_objects(load_balancer),
        *(_as_written_by_a_user(obj) for obj in _shared("service.yaml")),
        *(_as_written_by_a_user(obj) for obj in _shared("ingresses.yaml")),
    ]


def _ingress_controller(certificates: Path) -> list[Object]:
    served = Certificates(*(_MOUNT / "tls" / name for name in ("ca.crt", "tls.crt", "tls.key")))
    configuration = nginx_configuration(
        _TEMPORARY, Path("/dev/stderr"), Path("/dev/stdout"), served, (REGISTRY_CLUSTER_IP, REGISTRY_PORT)
    )
    secret = {
        "tls.crt": base64.b64encode((certificates / "server.crt").read_bytes()).decode("ascii"),
        "tls.key": base64.b64encode((certificates / "server.key").read_bytes()).decode("ascii"),
    }
    volumes = [
        {"name": "configuration", "configMap": {"name": "nginx"}},
        {"name": "tls", "secret": {"secretName": "tls"}},
        {"name": "temporary", "emptyDir": {}},
    ]
    container = {
        "name": "nginx",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["nginx", "-c", str(_MOUNT / "nginx" / "nginx.conf"), "-e", "/dev/stderr"],
        "readinessProbe": {"tcpSocket": {"port": 443}},
        "volumeMounts": [
            {"name": "configuration", "mountPath": str(_MOUNT / "nginx")},
            {"name": "tls", "mountPath": str(_MOUNT / "tls")},
            {"name": "temporary", "mountPath": str(_TEMPORARY)},
        ],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _labels("ingress-nginx")},
    }
    pod = {"containers": [container], "volumes": volumes, "topologySpreadConstraints": [spread]}
    return [
        _object("v1", "ConfigMap", "nginx", _INGRESS_NGINX, data={"nginx.conf": configuration}),
        _object("v1", "Secret", "tls", _INGRESS_NGINX, type="kubernetes.io/tls", data=secret),
        _object("networking.k8s.io/v1", "IngressClass", "nginx", spec={"controller": "example.test/testbed"}),
        _deployment("ingress-nginx", _INGRESS_NGINX, pod, replicas=2),
    ]


def _registry() -> list[Object]:
    configuration = registry_configuration(_TEMPORARY, IPv4Address("0.0.0.0"), REGISTRY_PORT)
    container = {
        "name": "registry",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["docker-registry", "serve", str(_MOUNT / "config.yml")],
        "readinessProbe": {"tcpSocket": {"port": REGISTRY_PORT}},
        "volumeMounts": [
            {"name": "configuration", "mountPath": str(_MOUNT)},
            {"name": "storage", "mountPath": str(_TEMPORARY)},
        ],
    }
    volumes = [
        {"name": "configuration", "configMap": {"name": "registry"}},
        {"name": "storage", "emptyDir": {}},
    ]
    # On cp, for files are pushed to it before any node has joined.
    pod = {
        "containers": [container],
        "volumes": volumes,
        "nodeSelector": _ON_CP,
        "tolerations": _MEANT_FOR_CP,
    }
    service = {
        "clusterIP": str(REGISTRY_CLUSTER_IP),
        "selector": _labels("registry"),
        "ports": [{"name": "http", "port": REGISTRY_PORT, "targetPort": REGISTRY_PORT}],
    }
    return [
        # JSON is YAML.
        _object("v1", "ConfigMap", "registry", "registry", data={"config.yml": json.dumps(configuration)}),
        _deployment("registry", "registry", pod),
        _object("v1", "Service", "registry", "registry", spec=service),
    ]


def lb_address_objects(load_balancer: str) -> list[Object]:
    """Return what lb_address.py runs as, and what it may do."""
    name = "lb-address"
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["list"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]},
    ]
    program = "/usr/local/lib/testbed/lb_address.py"
    container = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", program, "--address", load_balancer],
    }
    pod = {
        "serviceAccountName": name,
        "containers": [container],
        "nodeSelector": _ON_CP,
        "tolerations": _MEANT_FOR_CP,
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    return [
        _object("v1", "ServiceAccount", name, name),
        _object(f"{rbac}/v1", "ClusterRole", name, rules=rules),
        _object(f"{rbac}/v1", "ClusterRoleBinding", name, roleRef=role, subjects=[subject]),
        _deployment(name, name, pod),
    ]


def _shared(file: str) -> list[Object]:
    return [obj for obj in yaml.safe_load_all((_SHARED / file).read_text(encoding="utf-8")) if obj]


def _as_written_by_a_user(obj: Object) -> Object:
    """Leave out what the cluster fills in by itself."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _deployment(name: str, namespace: str, pod: Object, *, replicas: int = 1) -> Object:
    labels = _labels(name)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"enableServiceLinks": False} | pod},
    }
    return _object("apps/v1", "Deployment", name, namespace, spec=spec)


def _object(version: str, kind: str, name: str, namespace: str = "", **content: object) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


if __name__ == "__main__":
    found = manifests(Path(sys.argv[1]), settings()["LB_ADDRESS"])
    json.dump({"apiVersion": "v1", "kind": "List", "items": found}, sys.stdout, indent=1)
