"""An image pull as a container runtime makes it, step by step, up to the first bytes of a layer.

OCI distribution specification 1.1 and distribution's token authentication (its docs: spec/auth/token).
Nothing is stored, no credentials are asked for or sent: an anonymous token is fetched where one is offered.
"""

import json
import os
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from nodeagent.errors import one_line
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.sources.probes.connecting import ask, ask_certificate
from nodeagent.sources.probes.image_reference import ImageReference
from nodeagent.sources.probes.outcomes import CertificateOutcome, Ending, Outcome, Probe

_SECONDS = 10.0
_TIMEOUT = urllib3.Timeout(connect=_SECONDS, read=_SECONDS)
_LONGEST_MANIFEST = 4 * 1024 * 1024
_FIRST_BYTES = 4096
_NOBODY = frozenset({Ending.REFUSED, Ending.UNREACHABLE, Ending.CONNECT_TIMEOUT})
# Redirects are followed (layers lie in object stores); nothing else is tried twice.
_REDIRECTS = urllib3.Retry(total=5, redirect=5, connect=0, read=0, status=0, other=0)
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Stage(StrEnum):
    """The steps of a pull, in their order."""

    NAME = "resolve the name"
    CONNECT = "connect"
    TLS = "TLS and its certificate"
    REGISTRY = "/v2/"
    CREDENTIALS = "anonymous token"
    MANIFEST = "manifest"
    LAYER = "first bytes of a layer"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: whether it went well, and what was seen.

    `outcome` and `certificate` are there where the connection itself, or its certificate, was the trouble.
    """

    stage: Stage
    ok: bool
    seen: str
    outcome: Outcome | None = None
    certificate: CertificateOutcome | None = None


class _Stopped(Exception):  # noqa: N818 - no error: the rehearsal ends here
    """The step at which it went no further."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.seen)
        self.step = step


def rehearse(
    image: ImageReference, resolve: Callable[[str], tuple[IPAddress, ...]], context: ssl.SSLContext
) -> tuple[Step, ...]:
    """Goes through the steps until one fails; about 10 s each at most.

    Args:
        image: what to pull.
        resolve: gives the addresses of a name as this host's own programs see them.
        context: which authorities are trusted.

    Returns:
        Every step that was made, the failed one last.
    """
    steps: list[Step] = []
    try:
        for step in _steps(image, resolve, context):
            steps.append(step)
            if not step.ok:
                break
    except _Stopped as stopped:
        steps.append(stopped.step)
    return tuple(steps)


def _steps(
    image: ImageReference, resolve: Callable[[str], tuple[IPAddress, ...]], context: ssl.SSLContext
) -> Iterator[Step]:
    addresses = resolve(image.host)
    if not addresses:
        yield Step(Stage.NAME, ok=False, seen=f"{image.host} has no address on this host")
        return
    yield Step(Stage.NAME, ok=True, seen=f"{image.host} is {', '.join(map(str, addresses))}")
    yield from _connection(image, [Endpoint(address, image.port) for address in addresses], context)
    with urllib3.PoolManager(timeout=_TIMEOUT, ssl_context=context) as pool:
        session = _Session(image, pool)
        yield session.registry()
        if session.challenge:
            yield session.token()
        manifest = session.manifest()
        yield Step(Stage.MANIFEST, ok=True, seen=session.told)
        yield session.layer(manifest)


def _connection(image: ImageReference, endpoints: list[Endpoint], context: ssl.SSLContext) -> Iterator[Step]:
    """TCP and TLS apart from HTTP, so that a cut connection is told from a bad certificate.

    The first address that takes a connection is used, in the resolver's order, as a runtime does.
    """
    silent = []
    for endpoint in endpoints:
        outcome = ask(Probe(endpoint, None, tls=True, host=image.host))
        if outcome.ending not in _NOBODY:
            break
        silent.append(f"{endpoint}: {outcome}")
    else:
        yield Step(Stage.CONNECT, ok=False, seen="; ".join(silent), outcome=outcome)
        return
    yield Step(Stage.CONNECT, ok=True, seen=f"{endpoint} takes the connection")
    if outcome.ending not in {
        Ending.STATUS,
        Ending.NOT_HTTP,
        Ending.EMPTY_REPLY,
        Ending.RESET,
        Ending.SILENT,
    }:
        yield Step(Stage.TLS, ok=False, seen=f"{endpoint}: {outcome}", outcome=outcome)
        return
    certificate = ask_certificate(Probe(endpoint, None, tls=True, host=image.host), context)
    yield Step(
        Stage.TLS,
        ok=certificate.trust == "valid",
        seen=f"certificate: {certificate.words}",
        certificate=certificate,
    )


class _Session:
    """The HTTP part: one registry, one image."""

    def __init__(self, image: ImageReference, pool: urllib3.PoolManager) -> None:
        self._base = f"https://{image.authority}/v2/"
        self._image = image
        self._pool = pool
        self._headers: dict[str, str] = {}
        self.challenge: dict[str, str] = {}
        self.told = ""

    def registry(self) -> Step:
        """Asks `/v2/`: 200 to everybody, or 401 with a challenge (end-1 of the specification)."""
        answer = self._get(Stage.REGISTRY, self._base)
        if answer.status == 200:
            return Step(Stage.REGISTRY, ok=True, seen="200: open to everybody")
        scheme, _, parameters = answer.headers.get("WWW-Authenticate", "").partition(" ")
        if answer.status == 401 and scheme.lower() == "bearer":
            self.challenge = dict(_PARAMETER.findall(parameters))
            return Step(
                Stage.REGISTRY, ok=True, seen=f"401 with a challenge by {self.challenge.get('realm', '?')}"
            )
        if answer.status == 401:
            raise _Stopped(
                Step(
                    Stage.CREDENTIALS,
                    ok=False,
                    seen=f"401: it asks for credentials ({scheme or 'no scheme'})",
                )
            )
        seen = f"HTTP {answer.status}: no registry answers here"
        return Step(Stage.REGISTRY, ok=False, seen=seen)

    def token(self) -> Step:
        """Fetches an anonymous token from where the challenge says."""
        realm = self.challenge.get("realm", "")
        if urlsplit(realm).scheme != "https":
            return Step(
                Stage.CREDENTIALS,
                ok=False,
                seen=f"the challenge's realm is no https address: {one_line(realm)}",
            )
        query = {"scope": f"repository:{self._image.repository}:pull"}
        if "service" in self.challenge:
            query["service"] = self.challenge["service"]
        answer = self._get(Stage.CREDENTIALS, f"{realm}?{urlencode(query)}")
        if answer.status != 200:
            return Step(Stage.CREDENTIALS, ok=False, seen=f"no anonymous token: HTTP {answer.status}")
        found = _object(Stage.CREDENTIALS, answer.data)
        token = found.get("token") or found.get("access_token")
        if not token:
            return Step(Stage.CREDENTIALS, ok=False, seen="the token server gave no token")
        self._headers["Authorization"] = f"Bearer {token}"
        return Step(Stage.CREDENTIALS, ok=True, seen="an anonymous token was given")

    def manifest(self) -> dict[str, Any]:
        """Fetches the manifest, by way of the index to this machine's platform."""
        found = self._manifest(self._image.reference)
        if "manifests" not in found:
            self.told = f"{self._image.reference}: {len(found.get('layers', ()))} layers"
            return found
        machine = os.uname().machine
        wanted = _MACHINES.get(machine, machine)
        for entry in found["manifests"]:
            platform = entry.get("platform", {})
            if platform.get("os", "linux") == "linux" and platform.get("architecture") == wanted:
                chosen = self._manifest(str(entry["digest"]))
                self.told = f"index, linux/{wanted}: {len(chosen.get('layers', ()))} layers"
                return chosen
        raise _Stopped(Step(Stage.MANIFEST, ok=False, seen=f"the index has no image for linux/{wanted}"))

    def layer(self, manifest: dict[str, Any]) -> Step:
        """Reads the beginning of the first layer."""
        layers = manifest.get("layers") or []
        if not layers:
            return Step(Stage.LAYER, ok=True, seen="the image has no layers")
        digest, size = str(layers[0]["digest"]), int(layers[0].get("size", 0))
        url = f"{self._base}{self._image.repository}/blobs/{digest}"
        answer = self._get(Stage.LAYER, url, {"Range": f"bytes=0-{_FIRST_BYTES - 1}"}, _FIRST_BYTES)
        if answer.status not in {200, 206}:
            return Step(Stage.LAYER, ok=False, seen=f"HTTP {answer.status} for {digest[:19]}")
        expected = min(size, _FIRST_BYTES)
        if len(answer.data) < expected:
            return Step(
                Stage.LAYER, ok=False, seen=f"{len(answer.data)} of {expected} bytes of {digest[:19]} came"
            )
        return Step(Stage.LAYER, ok=True, seen=f"the first {expected} bytes arrived")

    def _manifest(self, reference: str) -> dict[str, Any]:
        url = f"{self._base}{self._image.repository}/manifests/{reference}"
        answer = self._get(
            Stage.MANIFEST, url, {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}, _LONGEST_MANIFEST
        )
        if answer.status in {401, 403}:
            raise _Stopped(
                Step(
                    Stage.CREDENTIALS,
                    ok=False,
                    seen=f"HTTP {answer.status}: not to be had without credentials",
                )
            )
        if answer.status != 200:
            what = "no such image or tag" if answer.status == 404 else "the registry gives no manifest"
            raise _Stopped(Step(Stage.MANIFEST, ok=False, seen=f"HTTP {answer.status}: {what}"))
        return _object(Stage.MANIFEST, answer.data)

    def _get(
        self, stage: Stage, url: str, headers: dict[str, str] | None = None, most: int = 65536
    ) -> "_Answer":
        sent = {"User-Agent": "nodeagent-doctor", **self._headers, **(headers or {})}
        try:
            # urllib3 drops Authorization where a redirect leads to another host (Retry's default).
            response = self._pool.request(
                "GET", url, headers=sent, preload_content=False, redirect=True, retries=_REDIRECTS
            )
            try:
                data = b"" if response.status >= 300 else response.read(most)
                return _Answer(response.status, dict(response.headers), data)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _Stopped(Step(stage, ok=False, seen=f"{url}: {one_line(error)}")) from error


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    data: bytes


def _object(stage: Stage, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _Stopped(Step(stage, ok=False, seen="the answer is no JSON object: no registry answers here"))
    return found
