"""The server as a process of its own, as the benchmarks use it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .handler import CONTROL
from .objects import ingress, node, service
from .wire import Peer, request

ROOT = Path(__file__).parents[2]
INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Peer]:
    """Provide a server process that was started with manifests."""
    many = {"kind": "List", "apiVersion": "v1", "items": [service("web"), ingress("site")]}
    (tmp_path / "many.yaml").write_text(yaml.safe_dump_all([many, node("n1")]), encoding="utf-8")
    command = [sys.executable, "-m", "tests.apiserver", "--objects", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Peer(int(line.rpartition(":")[2]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0


def test_a_process_serves_manifests_and_obeys(served: Peer) -> None:
    def names(path: str) -> list[str]:
        return [item["metadata"]["name"] for item in request(served, "GET", path)[1]["items"]]

    assert names("/api/v1/services") == ["web"]
    assert names(INGRESSES) == ["site"]
    for method, body, left in (
        ("apply", {"obj": ingress("more")}, ["more", "site"]),
        ("apply_all", {"objects": [ingress("last")]}, ["last", "more", "site"]),
        ("replace_all", {"plural": "ingresses", "objects": [ingress("only")]}, ["only"]),
        ("delete", {"plural": "ingresses", "name": "only", "namespace": "default"}, []),
    ):
        assert request(served, "POST", f"{CONTROL}{method}", body)[0] == 200
        assert names(INGRESSES) == left
