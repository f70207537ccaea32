"""The server as a process of its own, steered over /_control/ and by signals."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .objects import ingress, node, service

ROOT = Path(__file__).parents[2]


class Process:
    """A running server process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def call(self, path: str, body: object = None, token: str = "good") -> tuple[int, object]:  # noqa: S107 - the test's own
        """Send a request (POST when there is a body); gives status and JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)  # noqa: S310 - our own URL
        try:
            with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - our own URL
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def names(self, path: str) -> list[str]:
        """Give the names in a list."""
        listed = self.call(path)[1]
        assert isinstance(listed, dict)
        return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Process]:
    """Give a server process that was started with manifests, a token and a kubeconfig."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    many = {"kind": "List", "apiVersion": "v1", "items": [service("web"), ingress("site")]}
    (manifests / "many.yaml").write_text(yaml.safe_dump_all([many, node("n1")]), encoding="utf-8")
    command = [sys.executable, "-m", "tests.apiserver", "--objects", str(manifests), "--token", "good"]
    command += ["--kubeconfig", str(tmp_path / "kubeconfig")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Process(process, line.removeprefix("listening on ").strip())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0


def test_a_process_serves_manifests_and_obeys(served: Process, tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text(encoding="utf-8"))
    assert config["clusters"][0]["cluster"]["server"] == served.url
    assert config["users"][0]["user"] == {"token": "good"}
    assert served.call("/api/v1/services", token="bad")[0] == 401  # noqa: S106 - the test's own
    assert served.names("/api/v1/services") == ["web"]
    ingresses = "/apis/networking.k8s.io/v1/ingresses"
    assert served.names(ingresses) == ["site"]

    assert served.call("/_control/apply", {"objects": [ingress("more")]})[0] == 200
    assert served.names(ingresses) == ["more", "site"]
    served.call("/_control/replace", {"resource": "ingresses", "objects": [ingress("only")]})
    assert served.names(ingresses) == ["only"]
    served.call("/_control/delete", {"resource": "ingresses", "name": "only", "namespace": "default"})
    assert served.names(ingresses) == []

    served.call("/_control/faults", {"fault": "Answer", "with": {"code": 503}, "verbs": ["list"], "times": 1})
    assert [served.call("/api/v1/nodes")[0] for _ in range(2)] == [503, 200]
    served.call("/_control/faults", {"fault": "Delay", "with": {"seconds": 60.0}, "times": None})
    served.call("/_control/clear", {})
    assert served.call("/api/v1/nodes")[0] == 200

    served.call("/_control/options", {"service_fields": False, "expired_in_stream": False})
    assert served.call("/api/v1/services?fieldSelector=spec.type%3DLoadBalancer")[0] == 400
    served.call("/_control/compact", {})
    assert served.call("/api/v1/nodes?watch=1&resourceVersion=1")[0] == 410
    served.call("/_control/access", {"rbac": "{kind: ClusterRole, metadata: {name: none}, rules: []}"})
    assert served.call("/api/v1/nodes")[0] == 403
    assert served.call("/_control/end", {"how": "drop"})[0] == 200
    assert served.call("/_control/wait", {"watch": "nodes", "timeout": 0.01})[0] == 504
    assert served.call("/_control/apply", {"object": []})[0] == 400
    assert served.call("/_control/nothing", {})[0] == 404
    traffic = served.call("/_control/traffic")[1]
    assert isinstance(traffic, dict)
    assert traffic["openWatches"] == []
    assert {"verb": "list", "path": "/api/v1/nodes", "query": {}} in traffic["requests"]


def test_signals_stop_and_start_listening(served: Process) -> None:
    served.process.send_signal(signal.SIGUSR1)
    refused = False
    while not refused:
        try:
            served.call("/version")
        except (urllib.error.URLError, ConnectionError) as error:
            refused = "refused" in str(error)
    served.process.send_signal(signal.SIGUSR2)
    while refused:
        try:
            refused = served.call("/version")[0] != 200
        except (urllib.error.URLError, ConnectionError):
            refused = True
