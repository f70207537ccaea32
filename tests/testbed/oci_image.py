"""A container image made on the spot: one layer of random bytes."""

import hashlib
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


def random_layer(size_mib: int) -> bytes:
    """Make a layer with one file of this size.

    It is a plain tar: random bytes do not shrink, and compressing them would only take time.
    """
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("random")
        entry.size = size_mib * MIB
        tar.addfile(entry, BytesIO(os.urandom(entry.size)))
    return layer.getvalue()


def read_blob(path: Path) -> Blob:
    """Measure a file: its digest and its size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Blob(digest, path.stat().st_size)
