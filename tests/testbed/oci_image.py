"""A container image made on the spot: one layer of random bytes."""

import hashlib
import json
import os
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

MIB = 1024 * 1024


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


def write_image(layout: Path, size_mib: int) -> Blob:
    """Write an OCI image layout with the tag `latest`.

    The layer is a plain tar: random bytes do not shrink, and compressing them would only take time.

    Args:
        layout: Where it is written; made here.
        size_mib: The size of the layer's only file.

    Returns:
        The layer.
    """
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = _write_layer(blobs, size_mib)
    config = _write_json(
        blobs,
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}"]},
        },
    )
    manifest = _write_json(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        },
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="ascii")
    (layout / "index.json").write_text(
        json.dumps({"schemaVersion": 2, "manifests": [entry]}), encoding="ascii"
    )
    return layer


def read_blob(path: Path) -> Blob:
    """Measure a file: its digest and its size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Blob(digest, path.stat().st_size)


def _write_layer(blobs: Path, size_mib: int) -> Blob:
    temporary = blobs / "layer"
    with tarfile.open(temporary, "w") as tar:
        entry = tarfile.TarInfo("random")
        entry.size = size_mib * MIB
        tar.addfile(entry, BytesIO(os.urandom(entry.size)))
    layer = read_blob(temporary)
    temporary.rename(blobs / layer.digest)
    return layer


def _write_json(blobs: Path, content: dict[str, object]) -> Blob:
    data = json.dumps(content).encode("ascii")
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
    (blobs / blob.digest).write_bytes(data)
    return blob


def _descriptor(media_type: str, blob: Blob) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.digest}", "size": blob.size}
