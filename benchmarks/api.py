"""The simulated API server in the testbed, and what the benchmark does to it."""

import json
import ssl
import sys
from collections.abc import Generator, Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from benchmarks.entering import HttpsConnection
from tests.apiserver import objects
from tests.apiserver.server import CONTROL
from tests.testbed import addresses
from tests.testbed.certificates import make_certificate
from tests.testbed.world import MANIFESTS, World

ROOT = Path(__file__).parents[1]
_PORT = 6443
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
# The real server sends one about once a minute (KEP-956).
_BOOKMARK_SECONDS = 60

LB_NAMESPACE, LB_NAME = "bench", "controller"
LB_ADDRESS = IPv4Address("203.0.113.99")
_LB_CLUSTER_IP = "10.96.0.99"

JsonObject = dict[str, Any]


def ingress(name: str, *, reported: bool = True) -> JsonObject:
    """Build an Ingress as a real server returns it, with one host.

    Its status reports the testbed's load balancer, unless its controller has not `reported` yet.
    """
    status = [str(addresses.LOAD_BALANCER_IP)] if reported else []
    return objects.ingress(name, hosts=[host_of(name)], addresses=status)


def host_of(name: str) -> str:
    """Return the host that an Ingress of this name asks for."""
    return f"{name}.example.test"


class Api:
    """The API server in the testbed's host `lb`, as a process, steered from here.

    A program on node1 with `environment` reaches it as in a pod, with a ServiceAccount.

    Args:
        world: where it runs.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        server = str(addresses.LB)
        self.environment = {"KUBERNETES_SERVICE_HOST": server, "KUBERNETES_SERVICE_PORT": str(_PORT)}
        certificate, key = make_certificate(world.tmp, "kube-apiserver", f"subjectAltName=IP:{server}")
        world.node1.run(["mkdir", "-p", _ACCOUNT])
        world.node1.run(["tee", f"{_ACCOUNT}/token"], stdin="bench\n")
        world.node1.run(["tee", f"{_ACCOUNT}/ca.crt"], stdin=certificate.read_text("ascii"))
        command = [sys.executable, "-m", "tests.apiserver", "--address", server, "--port", str(_PORT)]
        command += ["--objects", str(MANIFESTS), "--tls-cert", str(certificate), "--tls-key", str(key)]
        command += ["--bookmarks", str(_BOOKMARK_SECONDS)]
        process = world.lb.popen(command, log="apiserver", env={"PYTHONPATH": str(ROOT)})
        world.lb.await_port(_PORT, process)
        self._tls = ssl.create_default_context(cafile=certificate)
        self._control = HttpsConnection(world.lb, server, _PORT, self._tls)
        self._touches = 0

    def close(self) -> None:
        """Let go of the connection; the server ends with the world."""
        self._control.close()

    def hold_ingresses(self, names: Iterable[str]) -> None:
        """Let these be all Ingresses there are."""
        self._send("replace_all", {"plural": "ingresses", "objects": [ingress(name) for name in names]})
        self.answered()

    # Each of these only sends its request, so that the answer's reading holds nothing up: then `answered`.

    def create_ingress(self, name: str, *, reported: bool = True) -> None:
        """Create an Ingress, or write its status once its controller has `reported`."""
        self._send("apply", {"obj": ingress(name, reported=reported)})

    def move_ingresses(self, names: Iterable[str], prefix: str) -> None:
        """Let each of these Ingresses ask for another host: its own with the prefix."""
        moved = [ingress(name) for name in names]
        for each in moved:
            each["spec"]["rules"][0]["host"] = prefix + host_of(each["metadata"]["name"])
            each["spec"].pop("tls", None)
        self._send("apply_all", {"objects": moved})

    def delete_ingress(self, name: str) -> None:
        """Delete it again."""
        self._send("delete", {"plural": "ingresses", "name": name, "namespace": "default"})

    def apply(self, document: JsonObject) -> None:
        """Create or replace an object, and wait for the answer."""
        self._send("apply", {"obj": document})
        self.answered()

    def delete(self, resource: str, name: str, namespace: str) -> None:
        """Delete an object, and wait for the answer."""
        self._send("delete", {"plural": resource, "name": name, "namespace": namespace})
        self.answered()

    def create_load_balancer(self) -> None:
        """Create a second Service of type LoadBalancer, with its address."""
        made = objects.service(
            LB_NAME,
            LB_NAMESPACE,
            kind="LoadBalancer",
            cluster_ips=[_LB_CLUSTER_IP],
            addresses=[str(LB_ADDRESS)],
        )
        self._send("apply", {"obj": made})

    def delete_load_balancer(self) -> None:
        """Delete it again."""
        self._send("delete", {"plural": "services", "name": LB_NAME, "namespace": LB_NAMESPACE})

    def touch(self) -> None:
        """Change an object that no agent watches."""
        # The server passes over a change that changes nothing.
        self._touches += 1
        self._send("apply", {"obj": objects.config_map("bench", data={"touch": str(self._touches)})})

    def answered(self) -> None:
        """Read the answer to the last request; http.client's error where the server could not do it."""
        self._control.getresponse().read()

    def bare_watch(self) -> Generator[None, None, None]:
        """Watch what `touch` changes, as the barest of clients on node1; yields at each line."""
        connection = HttpsConnection(self.world.node1, str(addresses.LB), _PORT, self._tls)
        connection.request("GET", "/api/v1/configmaps?watch=true", headers={"Accept": "application/json"})
        response = connection.getresponse()
        try:
            while response.readline():
                yield
        finally:
            connection.close()

    def _send(self, method: str, body: Mapping[str, object]) -> None:
        self._control.request("POST", f"{CONTROL}{method}", json.dumps(body))
