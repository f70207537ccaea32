"""An image pull as a container runtime makes it, step by step, up to the first bytes of a layer.

OCI distribution specification 1.1 and distribution's token authentication (its docs: spec/auth/token).
Nothing is stored, no credentials are requested or sent: an anonymous token is fetched if one is offered.
"""

import os
import re
import ssl
from collections.abc import Callable, Iterator
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
_NOBODY = frozenset({Ending.REFUSED, Ending.UNREACHABLE, Ending.CONNECT_TIMEOUT})
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

    def __init__(self, step: PullStep) -> None:
        super().__init__(step.seen)
        self.step = step


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
        for step in _steps(image, resolve, context):
            steps.append(step)
            if not step.ok:
                break
    except _Stopped as stopped:
        steps.append(stopped.step)
    return tuple(steps)


def _steps(
    image: ImageReference, resolve: Callable[[str], tuple[IPAddress, ...]], context: ssl.SSLContext
) -> Iterator[PullStep]:
    addresses = resolve(image.host)
    if not addresses:
        yield PullStep(Stage.NAME, ok=False, seen=f"{image.host} has no address on this host")
        return
    yield PullStep(Stage.NAME, ok=True, seen=f"{image.host} is {', '.join(map(str, addresses))}")
    yield from _connection(image, [Endpoint(address, image.port) for address in addresses], context)
    session = _Session(image, RegistryHttp(image, resolve, context))
    yield session.registry()
    if session.challenge:
        yield session.token()
    layers = session.layers()
    yield PullStep(Stage.MANIFEST, ok=True, seen=session.told)
    yield session.layer(layers)


def _connection(
    image: ImageReference, endpoints: list[Endpoint], context: ssl.SSLContext
) -> Iterator[PullStep]:
    """Test TCP and TLS separately from HTTP, to distinguish a rejected connection from a bad certificate.

    The first address that accepts a connection is used, in the resolver's order, as a runtime does.
    """
    silent = []
    for endpoint in endpoints:
        outcome = ask(Probe(endpoint, None, tls=True, host=image.host))
        if outcome.ending not in _NOBODY:
            break
        silent.append(f"{endpoint}: {outcome}")
    else:
        yield PullStep(Stage.CONNECT, ok=False, seen="; ".join(silent), outcome=outcome)
        return
    yield PullStep(Stage.CONNECT, ok=True, seen=f"{endpoint} accepts the connection")
    if outcome.ending not in {
        Ending.STATUS,
        Ending.NOT_HTTP,
        Ending.EMPTY_REPLY,
        Ending.RESET,
        Ending.SILENT,
    }:
        yield PullStep(Stage.TLS, ok=False, seen=f"{endpoint}: {outcome}", outcome=outcome)
        return
    certificate = ask_certificate(Probe(endpoint, None, tls=True, host=image.host), context)
    yield PullStep(
        Stage.TLS,
        ok=certificate.trust == "valid",
        seen=f"certificate: {certificate.words}",
        certificate=certificate,
    )


class _Session:
    """The HTTP part: one registry, one image."""

    def __init__(self, image: ImageReference, http: RegistryHttp) -> None:
        self._base = f"https://{image.authority}/v2/"
        self._image = image
        self._http = http
        self._headers: dict[str, str] = {}
        self.challenge: dict[str, str] = {}
        self.told = ""

    def registry(self) -> PullStep:
        """Request `/v2/`: 200 for everyone, or 401 with a challenge (end-1 of the specification)."""
        answer = self._get(Stage.REGISTRY, self._base)
        if answer.status == 200:
            return PullStep(Stage.REGISTRY, ok=True, seen="200: open to anyone")
        scheme, _, parameters = answer.headers.get("www-authenticate", "").partition(" ")
        if answer.status == 401 and scheme.lower() == "bearer":
            self.challenge = dict(_PARAMETER.findall(parameters))
            realm = quoted(self.challenge.get("realm", "nobody"), 200)
            return PullStep(Stage.REGISTRY, ok=True, seen=f"401 with a challenge by {realm}")
        if answer.status == 401:
            raise _Stopped(
                PullStep(
                    Stage.CREDENTIALS,
                    ok=False,
                    seen=f"401: it requires credentials ({quoted(scheme) if scheme else 'no scheme'})",
                )
            )
        seen = f"HTTP {answer.status}: this is not a registry"
        return PullStep(Stage.REGISTRY, ok=False, seen=seen)

    def token(self) -> PullStep:
        """Fetch an anonymous token from the place that the challenge names."""
        realm = self.challenge.get("realm", "")
        query = {"scope": f"repository:{self._image.repository}:pull"}
        if "service" in self.challenge:
            query["service"] = self.challenge["service"]
        answer = self._get(Stage.CREDENTIALS, f"{realm}?{urlencode(query)}")
        if answer.status != 200:
            return PullStep(Stage.CREDENTIALS, ok=False, seen=f"no anonymous token: HTTP {answer.status}")
        found = _decoded(Stage.CREDENTIALS, answer.data, _Token)
        token = found.token or found.access_token or ""
        if not _TOKEN.fullmatch(token):
            return PullStep(Stage.CREDENTIALS, ok=False, seen="the token server returned no token")
        self._headers["Authorization"] = f"Bearer {token}"
        return PullStep(Stage.CREDENTIALS, ok=True, seen="got an anonymous token")

    def layers(self) -> list[_Descriptor]:
        """Fetch the manifest, through the index to this machine's platform, and return its layers."""
        found = self._manifest(self._image.reference)
        if found.manifests is None:
            layers = found.layers or []
            self.told = f"{self._image.reference}: {len(layers)} layers"
            return layers
        machine = os.uname().machine
        wanted = _MACHINES.get(machine, machine)
        for entry in found.manifests:
            platform = entry.platform or _Platform()
            if platform.os == "linux" and platform.architecture == wanted:
                layers = self._manifest(_digest(Stage.MANIFEST, entry)).layers or []
                self.told = f"index, linux/{wanted}: {len(layers)} layers"
                return layers
        raise _Stopped(PullStep(Stage.MANIFEST, ok=False, seen=f"the index has no image for linux/{wanted}"))

    def layer(self, layers: list[_Descriptor]) -> PullStep:
        """Read the beginning of the first layer."""
        if not layers:
            return PullStep(Stage.LAYER, ok=True, seen="the image has no layers")
        digest = _digest(Stage.LAYER, layers[0])
        url = f"{self._base}{self._image.repository}/blobs/{digest}"
        answer = self._get(Stage.LAYER, url, {"Range": f"bytes=0-{_FIRST_BYTES - 1}"}, _FIRST_BYTES)
        if answer.status not in {200, 206}:
            return PullStep(Stage.LAYER, ok=False, seen=f"HTTP {answer.status} for {digest[:19]}")
        expected = min(layers[0].size, _FIRST_BYTES)
        if len(answer.data) < expected:
            return PullStep(
                Stage.LAYER, ok=False, seen=f"{len(answer.data)} of {expected} bytes of {digest[:19]} arrived"
            )
        return PullStep(Stage.LAYER, ok=True, seen=f"the first {max(expected, 0)} bytes arrived")

    def _manifest(self, reference: str) -> _Manifest:
        url = f"{self._base}{self._image.repository}/manifests/{reference}"
        answer = self._get(
            Stage.MANIFEST, url, {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}, _LONGEST_MANIFEST
        )
        if answer.status in {401, 403}:
            raise _Stopped(
                PullStep(
                    Stage.CREDENTIALS,
                    ok=False,
                    seen=f"HTTP {answer.status}: not available without credentials",
                )
            )
        if answer.status != 200:
            what = "no such image or tag" if answer.status == 404 else "the registry returns no manifest"
            raise _Stopped(PullStep(Stage.MANIFEST, ok=False, seen=f"HTTP {answer.status}: {what}"))
        return _decoded(Stage.MANIFEST, answer.data, _Manifest)

    def _get(
        self, stage: Stage, url: str, headers: dict[str, str] | None = None, most: int = _LONGEST_ANSWER
    ) -> RegistryAnswer:
        sent = {"User-Agent": "nodeagent-doctor", **self._headers, **(headers or {})}
        try:
            return self._http.get(url, sent, most)
        except NoAnswerError as error:
            raise _Stopped(PullStep(stage, ok=False, seen=str(error))) from error


def _digest(stage: Stage, found: _Descriptor) -> str:
    """Return the digest, which becomes a part of an address: only a valid one."""
    if not _DIGEST.fullmatch(found.digest):
        raise _Stopped(PullStep(stage, ok=False, seen=f"{quoted(found.digest)} is not a digest"))
    return found.digest


def _decoded(stage: Stage, data: bytes, expected: type[_Decoded]) -> _Decoded:
    try:
        return from_json(data, expected)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        seen = f"the answer is not what a registry sends: {one_line(error)}"
        raise _Stopped(PullStep(stage, ok=False, seen=seen)) from error
