"""A certificate authority of the world's own, and the ingress controller's certificate."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import WorldError

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Files: the authority's certificate, the server's certificate, the server's key."""

    ca: Path
    server: Path
    server_key: Path


def make_certificates(directory: Path, names: Sequence[str], *, days: int = 2) -> Certificates:
    """Make an authority and one server certificate for these DNS names, in a directory that is made here."""
    directory.mkdir()
    made = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    ca_key = directory / "ca.key"
    _request(
        *("-days", str(days)),
        *("-subj", "/CN=Testbed CA", "-keyout", ca_key, "-out", made.ca),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )
    _request(
        *("-days", str(days)),
        *("-subj", f"/CN={names[0]}", "-keyout", made.server_key, "-out", made.server),
        *("-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-CA", made.ca, "-CAkey", ca_key),
    )
    return made


def make_certificate(
    directory: Path, name: str, *extensions: str, by: tuple[Path, Path] | None = None
) -> tuple[Path, Path]:
    """Make a certificate and its key in a directory: signed by itself, or by an authority's files."""
    made, key = directory / f"{name}.crt", directory / f"{name}.key"
    options = [part for text in extensions for part in ("-addext", text)]
    if by is not None:
        options += ["-CA", str(by[0]), "-CAkey", str(by[1])]
    _request("-days", "2", "-keyout", key, "-out", made, "-subj", f"/CN={name}", *options)
    return made, key


def _request(*options: str | Path) -> None:
    command = ["openssl", "req", "-x509", *_NEW_KEY, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorldError(f"openssl: {done.stderr}")
