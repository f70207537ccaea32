"""The image registry behind the ingress controller: Debian's docker-registry."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection
from io import BytesIO
from typing import TYPE_CHECKING

from tests.testbed.addresses import bracketed
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host
    from tests.testbed.processes import Process

MIB = 1024 * 1024
_OCI = "application/vnd.oci.image"
_BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Blob:
    """Content known by its digest (sha256, in hex)."""

    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """An image in the registry: the reference to pull it by, and the one layer that must arrive."""

    reference: str
    layer: Blob


class Registry:
    """docker-registry in a pod, plain HTTP, which starts with the first push: most worlds pull nothing."""

    def __init__(self, host: Host, directory: Path, address: Address, port: int, name: str) -> None:
        directory.mkdir()
        self.host = host
        self._address = address
        self._port = port
        self._name = name
        self._configuration = directory / "config.yml"
        # JSON is YAML, and quotes paths right.
        text = json.dumps(registry_configuration(directory, address, port))
        self._configuration.write_text(text, encoding="ascii")

    @cached_property
    def process(self) -> Process:
        started = self.host.popen(["docker-registry", "serve", self._configuration])
        self.host.await_port(self._port, started)
        return started

    def push(self, repository: str, size_mib: int) -> Image:
        self.process.check_running()
        with closing(HTTPConnection(self.host.name)) as connection:
            connection.sock = self.host.connect(self._address, self._port)
            layer = _upload(connection, repository, _random_layer(size_mib))
            layers = {"type": "layers", "diff_ids": [f"sha256:{layer.digest}"]}
            about = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers}
            config = _upload(connection, repository, json.dumps(about).encode())
            kind = f"{_OCI}.manifest.v1+json"
            manifest = {
                "schemaVersion": 2,
                "mediaType": kind,
                "config": _descriptor("config.v1+json", config),
                "layers": [_descriptor("layer.v1.tar", layer)],
            }
            path = f"/v2/{repository}/manifests/latest"
            _send(connection, "PUT", path, json.dumps(manifest).encode(), kind)
        return Image(f"{self._name}/{repository}:latest", layer)


def _random_layer(size_mib: int) -> bytes:
    """Make a plain tar of one file: random bytes do not shrink, and compressing them would only take time."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("random")
        entry.size = size_mib * MIB
        tar.addfile(entry, BytesIO(os.urandom(entry.size)))
    return layer.getvalue()


def _upload(connection: HTTPConnection, repository: str, content: bytes) -> Blob:
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
    place = _send(connection, "POST", f"/v2/{repository}/blobs/uploads/")
    _send(connection, "PUT", f"{place}&digest=sha256:{blob.digest}", content)
    return blob


def _send(connection: HTTPConnection, method: str, path: str, body: bytes = b"", kind: str = _BYTES) -> str:
    """Send a request of a push; returns the location in the answer."""
    connection.request(method, path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in {HTTPStatus.ACCEPTED, HTTPStatus.CREATED}:
        raise WorldError(f"the registry: {method} {path}: {answer.status} {said!r}")
    return answer.headers["Location"]


def _descriptor(kind: str, blob: Blob) -> dict[str, object]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{blob.digest}", "size": blob.size}


def registry_configuration(directory: Path, address: Address, port: int) -> dict[str, object]:
    return {
        "version": "0.1",
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        "http": {"addr": f"{bracketed(address)}:{port}", "relativeurls": True},
    }
