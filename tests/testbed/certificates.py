"""A certificate authority of the world's own, and the ingress controller's certificate."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Files: the authority's certificate, the server's certificate, the server's key."""

    ca: Path
    server: Path
    server_key: Path


def make_certificates(directory: Path, names: Sequence[str], *, days: int = 2) -> Certificates:
    """Make an authority and one server certificate.

    Args:
        directory: Where the files go; made here.
        names: The DNS names that the server certificate is for.
        days: How long both are valid.

    Returns:
        The files.
    """
    directory.mkdir()
    made = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    for file, content in zip(
        (made.ca, made.server, made.server_key), _contents(tuple(names), days), strict=True
    ):
        file.write_bytes(content)
    return made


@cache
def _contents(names: Sequence[str], days: int) -> tuple[bytes, ...]:
    """Return what is in the files; the same in all worlds of a process."""
    with TemporaryDirectory() as directory:
        ca, ca_key, server, server_key = (Path(directory, name) for name in ("ca", "ca_key", "server", "key"))
        _request(
            *("-days", str(days)),
            *("-subj", "/CN=Testbed CA", "-keyout", ca_key, "-out", ca),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )
        _request(
            *("-days", str(days)),
            *("-subj", f"/CN={names[0]}", "-keyout", server_key, "-out", server),
            *("-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", ca, "-CAkey", ca_key),
        )
        return ca.read_bytes(), server.read_bytes(), server_key.read_bytes()


def make_certificate(certificate: Path, key: Path, address: str) -> None:
    """Make an API server's certificate for an address; clients verify it with itself.

    Args:
        certificate: The file for the certificate.
        key: The file for its key.
        address: The server's IP address.
    """
    name = ("-subj", "/CN=kube-apiserver", "-addext", f"subjectAltName=IP:{address}")
    _request("-days", "2", "-keyout", key, "-out", certificate, *name)


def _request(*options: str | Path) -> None:
    command = ["openssl", "req", "-x509", *_NEW_KEY, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorldError(f"openssl: {done.stderr}")
