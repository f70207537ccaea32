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
    ca = make_certificate(directory, "ca", "keyUsage=critical,keyCertSign", days=days)
    own = (
        "subjectAltName=" + ",".join(f"DNS:{name}" for name in names),
        "basicConstraints=critical,CA:FALSE",
    )
    return Certificates(ca[0], *make_certificate(directory, "server", *own, by=ca, days=days))


def make_certificate(
    directory: Path, name: str, *extensions: str, by: tuple[Path, Path] | None = None, days: int = 2
) -> tuple[Path, Path]:
    made, key = directory / f"{name}.crt", directory / f"{name}.key"
    options = [part for text in extensions for part in ("-addext", text)]
    if by is not None:
        options += ["-CA", str(by[0]), "-CAkey", str(by[1])]
    files = ["-keyout", str(key), "-out", str(made)]
    command = ["openssl", "req", "-x509", *_NEW_KEY, "-days", str(days), "-subj", f"/CN={name}", *files]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorldError(f"openssl: {done.stderr}")
    return made, key
