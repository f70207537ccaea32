"""What the cluster of the virtual machines runs, as one List for `kubectl apply -f -`; needs PyYAML.

    python3 -m tests.testbed.vagrant.manifests CERTIFICATES

The objects are those of cluster.yaml, and the Service and the Ingresses of tests/testbed/manifests; nginx and
the registry are configured as in the namespaces.
"""

from __future__ import annotations

import base64
import json
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.addresses import REGISTRY_PORT
from tests.testbed.certificates import Certificates
from tests.testbed.ingress import nginx_configuration
from tests.testbed.registry import registry_configuration
from tests.testbed.vagrant.render import settings

Object = dict[str, Any]

_CLUSTER = Path(__file__).with_name("cluster.yaml")
_SHARED = Path(__file__).parents[1] / "manifests"
_TLS = Path("/etc/testbed/tls")
_TEMPORARY = Path("/tmp/testbed")  # noqa: S108 - in a container, a volume of its own


def manifests(certificates: Path, load_balancer: str) -> list[Object]:
    """Return all objects, with the certificates of the directory that render.py filled."""
    text = _CLUSTER.read_text("utf-8").replace("LB_ADDRESS", load_balancer)
    objects: list[Object] = list(yaml.safe_load_all(text))
    named = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    served = Certificates(*(_TLS / name for name in ("ca.crt", "tls.crt", "tls.key")))
    upstream = (ip_address(named["Service", "registry"]["spec"]["clusterIP"]), REGISTRY_PORT)
    outputs = (Path("/dev/stderr"), Path("/dev/stdout"))
    named["ConfigMap", "nginx"]["data"]["nginx.conf"] = nginx_configuration(
        _TEMPORARY, *outputs, served, upstream
    )
    for ours, theirs in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        content = base64.b64encode((certificates / ours).read_bytes()).decode("ascii")
        named["Secret", "tls"]["data"][theirs] = content
    # JSON is YAML.
    registry = registry_configuration(_TEMPORARY, ip_address("0.0.0.0"), REGISTRY_PORT)
    named["ConfigMap", "registry"]["data"]["config.yml"] = json.dumps(registry)
    for file in ("service.yaml", "ingresses.yaml"):
        shared = yaml.safe_load_all((_SHARED / file).read_text("utf-8"))
        objects += [_as_written_by_a_user(obj) for obj in shared if obj]
    return objects


def _as_written_by_a_user(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


if __name__ == "__main__":
    found = manifests(Path(sys.argv[1]), settings()["LB_ADDRESS"])
    json.dump({"apiVersion": "v1", "kind": "List", "items": found}, sys.stdout, indent=1)
