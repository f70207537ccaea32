"""An image pull as a container runtime makes it, step by step, up to the first bytes of a layer.

OCI distribution specification 1.1 and distribution's token authentication (its docs: spec/auth/token).
Nothing is stored, no credentials are requested or sent: an anonymous token is fetched if one is offered.
"""

import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from nodeagent.errors import one_line, quoted
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.sources.probes.connection_tests import (
    CertificateOutcome,
    Ending,
    Probe,
    ProbeOutcome,
    ask,
    ask_certificate,
)
from nodeagent.sources.probes.registry_http import ImageReference, NoAnswerError, RegistryAnswer, RegistryHttp
from nodeagent.typed_values import from_json

_LONGEST_MANIFEST = 4 * 1024 * 1024
_FIRST_BYTES = 4096
_AFTER_TLS = frozenset({Ending.STATUS, Ending.NOT_HTTP, Ending.EMPTY_REPLY, Ending.RESET, Ending.SILENT})
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
_LONGEST_ANSWER = 65536
# OCI image specification, descriptors: "digest"; RFC 6750, 2.1: b64token.
_DIGEST = re.compile(r"[A-Za-z0-9+._-]{1,64}:[A-Za-z0-9=_-]{1,256}")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

_Decoded = TypeVar("_Decoded")


class _Platform(Struct):
    os: str = "linux"
    architecture: str = ""


class _Descriptor(Struct):
    """Of an image or a layer."""

    digest: str
    size: int = 0
    platform: _Platform | None = None


class _Manifest(Struct):
    """Of an image (`layers`), or an index (`manifests`)."""

    manifests: list[_Descriptor] | None = None
    layers: list[_Descriptor] | None = None


class _Token(Struct):
    token: str | None = None
    access_token: str | None = None


class Stage(StrEnum):
    """The steps of a pull, in their order."""

    NAME = "resolve the name"
    CONNECT = "connect"
    TLS = "TLS and its certificate"
    REGISTRY = "/v2/"
    CREDENTIALS = "anonymous token"
    MANIFEST = "manifest"
    LAYER = "first bytes of a layer"


class PullStep(Struct, frozen=True):
    """One step: whether it succeeded, and the observation.

    `outcome` and `certificate` are set if the connection itself, or its certificate, was the problem.
    """

    stage: Stage
    ok: bool
    seen: str
    outcome: ProbeOutcome | None = None
    certificate: CertificateOutcome | None = None


class _Stopped(Exception):  # noqa: N818 - no error: the rehearsal ends here
    """The step that failed."""

    def __init__(
        self,
        stage: Stage,
        seen: str,
        outcome: ProbeOutcome | None = None,
        certificate: CertificateOutcome | None = None,
    ) -> None:
        super().__init__(seen)
        self.step = PullStep(stage, ok=False, seen=seen, outcome=outcome, certificate=certificate)


def rehearse(
    image: ImageReference, resolve: Callable[[str], tuple[IPAddress, ...]], context: ssl.SSLContext
) -> tuple[PullStep, ...]:
    """Run the steps until one fails; about 10 s each at most.

    Args:
        image: what to pull.
        resolve: returns the addresses of a hostname as this host's own programs see them.
        context: which authorities are trusted.

    Returns:
        Every step that was made, the failed one last.
    """
    steps: list[PullStep] = []
    try:
        for stage, seen in _steps(image, resolve, context):
            steps.append(PullStep(stage, ok=True, seen=seen))
    except _Stopped as stopped:
        steps.append(stopped.step)
    return tuple(steps)


def _steps(
    image: ImageReference, resolve: Callable[[str], tuple[IPAddress, ...]], context: ssl.SSLContext
) -> Iterator[tuple[Stage, str]]:
    """Yield each step that succeeded, and what was seen; raise _Stopped for the first that does not."""
    addresses = resolve(image.host)
    if not addresses:
        raise _Stopped(Stage.NAME, f"{image.host} has no address on this host")
    yield Stage.NAME, f"{image.host} is {', '.join(map(str, addresses))}"
    endpoint, outcome = _connected(image, addresses)
    yield Stage.CONNECT, f"{endpoint} accepts the connection"
    yield Stage.TLS, f"certificate: {_certified(image, endpoint, outcome, context)}"
    session = _Session(image, RegistryHttp(image, resolve, context))
    yield Stage.REGISTRY, session.registry()
    if session.challenge:
        yield Stage.CREDENTIALS, session.token()
    seen, layers = session.layers()
    yield Stage.MANIFEST, seen
    yield Stage.LAYER, session.layer(layers)


def _connected(image: ImageReference, addresses: Iterable[IPAddress]) -> tuple[Endpoint, ProbeOutcome]:
    """Return the first address that accepts a connection, in the resolver's order, as a runtime does."""
    silent = []
    for endpoint in (Endpoint(address, image.port) for address in addresses):
        outcome = ask(Probe(endpoint, None, tls=True, host=image.host))
        if not outcome.is_unheard:
            return endpoint, outcome
        silent.append(f"{endpoint}: {outcome}")
    raise _Stopped(Stage.CONNECT, "; ".join(silent), outcome)


def _certified(
    image: ImageReference, endpoint: Endpoint, outcome: ProbeOutcome, context: ssl.SSLContext
) -> str:
    """Test TLS separately from HTTP, to distinguish a rejected connection from a bad certificate."""
    if outcome.ending not in _AFTER_TLS:
        raise _Stopped(Stage.TLS, f"{endpoint}: {outcome}", outcome)
    certificate = ask_certificate(Probe(endpoint, None, tls=True, host=image.host), context)
    if certificate.trust != "valid":
        raise _Stopped(Stage.TLS, f"certificate: {certificate.words}", certificate=certificate)
    return certificate.words


class _Session:
    """The HTTP part: one registry, one image. Each step returns what was seen, or raises _Stopped."""

    def __init__(self, image: ImageReference, http: RegistryHttp) -> None:
        self._base = f"https://{image.authority}/v2/"
        self._image = image
        self._http = http
        self._headers: dict[str, str] = {}
        self.challenge: dict[str, str] = {}

    def registry(self) -> str:
        """Request `/v2/`: 200 for everyone, or 401 with a challenge (end-1 of the specification)."""
        answer = self._get(Stage.REGISTRY, self._base)
        if answer.status == 200:
            return "200: open to anyone"
        if answer.status != 401:
            raise _Stopped(Stage.REGISTRY, f"HTTP {answer.status}: this is not a registry")
        scheme, _, parameters = answer.headers.get("www-authenticate", "").partition(" ")
        if scheme.lower() != "bearer":
            what = quoted(scheme) if scheme else "no scheme"
            raise _Stopped(Stage.CREDENTIALS, f"401: it requires credentials ({what})")
        self.challenge = dict(_PARAMETER.findall(parameters))
        return f"401 with a challenge by {quoted(self.challenge.get('realm', 'nobody'), 200)}"

    def token(self) -> str:
        """Fetch an anonymous token from the place that the challenge names."""
        realm = self.challenge.get("realm", "")
        query = {"scope": f"repository:{self._image.repository}:pull"}
        if "service" in self.challenge:
            query["service"] = self.challenge["service"]
        answer = self._get(Stage.CREDENTIALS, f"{realm}?{urlencode(query)}")
        if answer.status != 200:
            raise _Stopped(Stage.CREDENTIALS, f"no anonymous token: HTTP {answer.status}")
        found = _decoded(Stage.CREDENTIALS, answer.data, _Token)
        token = found.token or found.access_token or ""
        if not _TOKEN.fullmatch(token):
            raise _Stopped(Stage.CREDENTIALS, "the token server returned no token")
        self._headers["Authorization"] = f"Bearer {token}"
        return "got an anonymous token"

    def layers(self) -> tuple[str, list[_Descriptor]]:
        """Fetch the manifest, through the index to this machine's platform, and return its layers."""
        found = self._manifest(self._image.reference)
        if found.manifests is None:
            layers = found.layers or []
            return f"{self._image.reference}: {len(layers)} layers", layers
        machine = os.uname().machine
        wanted = _MACHINES.get(machine, machine)
        for entry in found.manifests:
            platform = entry.platform or _Platform()
            if platform.os == "linux" and platform.architecture == wanted:
                layers = self._manifest(_digest(Stage.MANIFEST, entry)).layers or []
                return f"index, linux/{wanted}: {len(layers)} layers", layers
        raise _Stopped(Stage.MANIFEST, f"the index has no image for linux/{wanted}")

    def layer(self, layers: list[_Descriptor]) -> str:
        """Read the beginning of the first layer."""
        if not layers:
            return "the image has no layers"
        digest = _digest(Stage.LAYER, layers[0])
        url = f"{self._base}{self._image.repository}/blobs/{digest}"
        answer = self._get(Stage.LAYER, url, {"Range": f"bytes=0-{_FIRST_BYTES - 1}"}, _FIRST_BYTES)
        if answer.status not in {200, 206}:
            raise _Stopped(Stage.LAYER, f"HTTP {answer.status} for {digest[:19]}")
        expected = min(layers[0].size, _FIRST_BYTES)
        if len(answer.data) < expected:
            seen = f"{len(answer.data)} of {expected} bytes of {digest[:19]} arrived"
            raise _Stopped(Stage.LAYER, seen)
        return f"the first {max(expected, 0)} bytes arrived"

    def _manifest(self, reference: str) -> _Manifest:
        url = f"{self._base}{self._image.repository}/manifests/{reference}"
        accept = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
        answer = self._get(Stage.MANIFEST, url, accept, _LONGEST_MANIFEST)
        if answer.status in {401, 403}:
            raise _Stopped(Stage.CREDENTIALS, f"HTTP {answer.status}: not available without credentials")
        if answer.status != 200:
            what = "no such image or tag" if answer.status == 404 else "the registry returns no manifest"
            raise _Stopped(Stage.MANIFEST, f"HTTP {answer.status}: {what}")
        return _decoded(Stage.MANIFEST, answer.data, _Manifest)

    def _get(
        self, stage: Stage, url: str, headers: dict[str, str] | None = None, most: int = _LONGEST_ANSWER
    ) -> RegistryAnswer:
        sent = {"User-Agent": "nodeagent-doctor", **self._headers, **(headers or {})}
        try:
            return self._http.get(url, sent, most)
        except NoAnswerError as error:
            raise _Stopped(stage, str(error)) from error


def _digest(stage: Stage, found: _Descriptor) -> str:
    """Return the digest, which becomes a part of an address: only a valid one."""
    if not _DIGEST.fullmatch(found.digest):
        raise _Stopped(stage, f"{quoted(found.digest)} is not a digest")
    return found.digest


def _decoded(stage: Stage, data: bytes, expected: type[_Decoded]) -> _Decoded:
    try:
        return from_json(data, expected)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        seen = f"the answer is not what a registry sends: {one_line(error)}"
        raise _Stopped(stage, seen) from error
