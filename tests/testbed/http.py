from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from tests.testbed.addresses import Address

_SEPARATOR, _END = "\x1e", "\x1f"
_DEFAULT_PORTS = {"http": 80, "https": 443}

CUT = frozenset({35, 52, 56})
"""curl's exit codes without the PROXY header: a TLS handshake was cut, no answer came, or a reset."""


@dataclass(frozen=True)
class CurlResult:
    """The result of a request: `status` is 0 if no answer was read."""

    exit_code: int
    status: int
    body: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.status == HTTPStatus.OK

    @property
    def cut(self) -> bool:
        return self.exit_code in CUT and self.status == 0


def resolving(url: str, address: Address | None) -> list[str]:
    if address is None:
        return []
    parts = urlsplit(url)
    return ["--resolve", f"{parts.hostname}:{parts.port or _DEFAULT_PORTS[parts.scheme]}:{address}"]


def curl_command(requests: Sequence[tuple[str, Sequence[str]]], timeout: float) -> list[str]:
    """Return the command line of one curl that asks for pages of different families, schemes, names or ports.

    So each has a connection of its own.
    """
    said = _SEPARATOR.join(("", "%{http_code}", "%{exitcode}", "%{errormsg}")) + _END
    options = ["--silent", "--max-time", f"{timeout:g}", "--write-out", said]
    command = ["curl", "-q"]
    for url, further in requests:
        command += [*(["--next"] if command[2:] else []), *options, *further, url]
    return command


def curl_results(stdout: str) -> list[CurlResult]:
    results = []
    for said in stdout.split(_END)[:-1]:
        body, status, code, error = said.split(_SEPARATOR)
        results.append(CurlResult(int(code), int(status), body, error))
    return results
