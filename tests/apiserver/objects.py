"""Builders of API objects as a real cluster's server returns them, and a reader of manifests.

They give plain dicts with kind and apiVersion, for the store to take; what a test needs otherwise, it
changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .resources import Object

_SUFFIXES = {".yaml", ".yml", ".json"}
_GATEWAY = "gateway.networking.k8s.io"


@dataclass(frozen=True, slots=True)
class Port:
    """A Service's port."""

    name: str
    port: int
    target: int | str
    node_port: int = 0
    protocol: str = "TCP"


HTTP_AND_HTTPS = (Port("http", 80, "http", 30080), Port("https", 443, "https", 30443))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of an EndpointSlice."""

    address: str
    node: str
    ready: bool = True


def _object(kind: str, version: str, metadata: Object, **fields: object) -> Object:
    return {"kind": kind, "apiVersion": version, "metadata": metadata, **fields}


def _balancer(entries: list[dict[str, str]]) -> Object:
    return {"loadBalancer": {"ingress": entries} if entries else {}}


def service(  # noqa: PLR0913 - each names one field of the object
    name: str,
    namespace: str = "default",
    *,
    kind: str = "ClusterIP",
    cluster_ips: Sequence[str] = ("10.96.0.10",),
    ports: Sequence[Port] = HTTP_AND_HTTPS,
    addresses: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Build a Service of a type (`kind`); the addresses are those of its status."""
    labels = {"app.kubernetes.io/name": name}
    metadata: Object = {"name": name, "namespace": namespace, "labels": labels}
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec: Object = {
        "ports": [
            {"name": port.name, "protocol": port.protocol, "port": port.port, "targetPort": port.target}
            | ({"nodePort": port.node_port} if kind != "ClusterIP" and port.node_port else {})
            for port in ports
        ],
        "selector": labels,
        "clusterIP": cluster_ips[0],
        "clusterIPs": list(cluster_ips),
        "type": kind,
        "ipFamilies": ["IPv6" if ":" in address else "IPv4" for address in cluster_ips if address != "None"],
        "ipFamilyPolicy": "PreferDualStack" if len(cluster_ips) > 1 else "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    if kind == "LoadBalancer":
        spec |= {"externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": True}
    status = _balancer([{"ip": address, "ipMode": "VIP"} for address in addresses])
    return _object("Service", "v1", metadata, spec=spec, status=status)


def load_balancer(
    name: str, namespace: str = "default", *, addresses: Sequence[str], annotations: Mapping[str, str]
) -> Object:
    return service(name, namespace, kind="LoadBalancer", addresses=addresses, annotations=annotations)


def ingress(
    name: str,
    namespace: str = "default",
    *,
    hosts: Sequence[str] = ("www.example.com",),
    addresses: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Build an Ingress with a rule for each of the hosts; the addresses are those of its status."""
    version = "networking.k8s.io/v1"
    # Most of the bytes of a real object.
    managed: Object = {
        "kubectl-client-side-apply": {
            "f:metadata": {"f:annotations": {".": {}, "f:cert-manager.io/cluster-issuer": {}}},
            "f:spec": {"f:ingressClassName": {}, "f:rules": {}, "f:tls": {}},
        },
        "nginx-ingress-controller": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    }
    update = {"operation": "Update", "apiVersion": version, "time": "2026-01-01T00:00:00Z"}
    metadata = {
        "name": name,
        "namespace": namespace,
        "generation": 1,
        "annotations": dict(annotations or {"cert-manager.io/cluster-issuer": "letsencrypt"}),
        "managedFields": [
            {"manager": manager, **update, "fieldsType": "FieldsV1", "fieldsV1": fields}
            for manager, fields in managed.items()
        ],
    }
    backend = {"service": {"name": name, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec = {
        "ingressClassName": "nginx",
        "rules": [{"host": host, "http": {"paths": paths}} for host in hosts],
        "tls": [{"hosts": list(hosts), "secretName": f"{name}-tls"}],
    }
    status = _balancer([{"ip": address} for address in addresses])
    return _object("Ingress", version, metadata, spec=spec, status=status)


def ingresses(count: int) -> Iterator[Object]:
    """Build many Ingresses, `site-00000` with host `site-00000.example.com` and so on."""
    for number in range(count):
        name = f"site-{number:05}"
        yield ingress(name, hosts=[f"{name}.example.com"])


def gateway(name: str, namespace: str = "default", *, addresses: Sequence[str] = ()) -> Object:
    tls = {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": f"{name}-tls"}]}
    listener: Object = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls}
    listener["allowedRoutes"] = {"namespaces": {"from": "All"}}
    metadata = {"name": name, "namespace": namespace, "generation": 1}
    spec = {"gatewayClassName": "example", "listeners": [listener]}
    status = {"addresses": [{"type": "IPAddress", "value": address} for address in addresses]}
    return _object("Gateway", f"{_GATEWAY}/v1", metadata, spec=spec, status=status)


def http_route(name: str, *, hostnames: Sequence[str] = ("www.example.com",), version: str = "v1") -> Object:
    """Build an HTTPRoute in the namespace default, attached to the Gateway `public` there."""
    parent = {"group": _GATEWAY, "kind": "Gateway", "name": "public"}
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": 1}
    rules = [{"backendRefs": [{"kind": "Service", "name": name, "port": 80}]}]
    metadata = {"name": name, "namespace": "default", "generation": 1}
    spec = {"parentRefs": [parent], "hostnames": list(hostnames), "rules": rules}
    status = {"parents": [{"parentRef": parent, "conditions": [accepted]}]}
    return _object("HTTPRoute", f"{_GATEWAY}/{version}", metadata, spec=spec, status=status)


def node(name: str, *, pod_cidrs: Sequence[str] = ("10.244.0.0/24",)) -> Object:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"}
    addresses = [{"type": "InternalIP", "address": "192.0.2.10"}, {"type": "Hostname", "address": name}]
    metadata = {"name": name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}}
    spec = {"podCIDR": pod_cidrs[0], "podCIDRs": list(pod_cidrs)}
    return _object("Node", "v1", metadata, spec=spec, status={"addresses": addresses, "conditions": [ready]})


def endpoint_slice(
    name: str,
    service_name: str,
    namespace: str = "default",
    *,
    endpoints: Sequence[Endpoint],
    ports: Mapping[str, int] | None = None,
) -> Object:
    """Build an EndpointSlice of a Service; `ports` maps port names to numbers."""
    held = ports if ports is not None else {"http": 80, "https": 443}
    labels = {
        "kubernetes.io/service-name": service_name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    made = _object(
        "EndpointSlice", "discovery.k8s.io/v1", {"name": name, "namespace": namespace, "labels": labels}
    )
    made["addressType"] = "IPv6" if endpoints and ":" in endpoints[0].address else "IPv4"
    made["ports"] = [{"name": key, "port": port, "protocol": "TCP"} for key, port in held.items()]
    made["endpoints"] = [
        {
            "addresses": [endpoint.address],
            "conditions": {"ready": endpoint.ready, "serving": endpoint.ready, "terminating": False},
            "nodeName": endpoint.node,
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": f"{service_name}-{number}"},
        }
        for number, endpoint in enumerate(endpoints)
    ]
    return made


def daemon_set(name: str, namespace: str = "kube-system") -> Object:
    labels = {"app.kubernetes.io/name": name}
    pod = {"containers": [{"name": name, "image": f"example.com/{name}:1"}]}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "generation": 1}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    status = {"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberReady": 1}
    return _object("DaemonSet", "apps/v1", metadata, spec=spec, status=status)


def config_map(name: str, namespace: str = "default", data: Mapping[str, str] | None = None) -> Object:
    return _object("ConfigMap", "v1", {"name": name, "namespace": namespace}, data=dict(data or {}))


def objects_under(path: Path) -> Iterator[Object]:
    """Read the objects of a file, or of all YAML and JSON files under a directory, in the order of names."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
    for file in files:
        for document in yaml.load_all(file.read_text("utf-8-sig"), Loader=yaml.CSafeLoader):
            if document:
                yield from document["items"] if document["kind"] == "List" else [document]
