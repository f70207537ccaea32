"""The test of a pull against a registry with configured behavior, over TLS."""

import json
import os
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.doctor.findings import Code
from nodeagent.doctor.names import pull_finding
from nodeagent.model.addresses import IPAddress
from nodeagent.sources.probes.connection_tests import Ending, ProbeOutcome, verifying_context
from nodeagent.sources.probes.image_pull import PullStep, Stage, rehearse
from nodeagent.sources.probes.registry_http import ImageReference, NoAnswerError, RegistryHttp
from tests.testbed.certificates import Certificates, make_certificates

LAYER = bytes(range(256)) * 40
DIGEST = f"sha256:{sha256(LAYER).hexdigest()}"
MANIFEST = {"schemaVersion": 2, "layers": [{"digest": DIGEST, "size": len(LAYER)}]}
_TOKEN = "anybody"  # noqa: S105 - of no value
_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
_FOREIGN = {"digest": "sha256:0", "platform": {"os": "linux", "architecture": "vax"}}
INDEX = {
    "schemaVersion": 2,
    "manifests": [_FOREIGN, {"digest": "sha256:1", "platform": {"os": "linux", "architecture": _MACHINE}}],
}
Reply = tuple[int, dict[str, str], bytes]
Puller = Callable[..., tuple[PullStep, ...]]


def _json(value: object, status: int = 200) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


@dataclass
class Script:
    """What the registry answers at each path; a token, where one is wanted, and what it was asked."""

    replies: dict[str, Reply] = field(default_factory=dict)
    token: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "made", ["localhost"])


@contextmanager
def _registry(script: Script, certificates: Certificates) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.asked.append((self.path, dict(self.headers)))
            path = self.path.partition("?")[0]
            status, headers, body = script.replies.get(path, (404, {}, b""))
            guarded = path.startswith("/v2/") and script.token
            if guarded and self.headers.get("Authorization") != f"Bearer {script.token}":
                realm = f"https://localhost:{server.server_port}/token"
                challenge = f'Bearer realm="{realm}",service="registry"'
                status, headers, body = 401, {"WWW-Authenticate": challenge}, b""
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _whole(**replies: Reply) -> Script:
    """A registry that holds `image:latest`; `replies` replace some of its own."""
    usual: dict[str, Reply] = {
        "/v2/": (200, {}, b"{}"),
        "/v2/image/manifests/latest": _json(MANIFEST),
        f"/v2/image/blobs/{DIGEST}": (206, {}, LAYER[:4096]),
    }
    named = {"root": "/v2/", "manifest": "/v2/image/manifests/latest", "layer": f"/v2/image/blobs/{DIGEST}"}
    return Script(usual | {named.get(name, name): reply for name, reply in replies.items()})


@pytest.fixture
def pull(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Puller:
    """Rehearse the pull of `image:latest` from a scripted registry."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))

    def rehearsed(script: Script, **addresses: tuple[str, ...]) -> tuple[PullStep, ...]:
        def resolve(name: str) -> tuple[IPAddress, ...]:
            return tuple(ip_address(one) for one in addresses.get(name, ("127.0.0.1",)))

        with _registry(script, certificates) as port:
            return rehearse(ImageReference.parse(f"localhost:{port}/image"), resolve, verifying_context())

    return rehearsed


def _code(steps: tuple[PullStep, ...]) -> Code:
    return pull_finding("image", steps, "").code


def test_an_open_registry(pull: Puller) -> None:
    script = _whole()
    steps = pull(script)
    assert [step.stage for step in steps] == [
        Stage.NAME,
        Stage.CONNECT,
        Stage.TLS,
        Stage.REGISTRY,
        Stage.MANIFEST,
        Stage.LAYER,
    ]
    assert _code(steps) is Code.PullWorks
    _, headers = script.asked[-1]
    assert headers["Range"] == "bytes=0-4095"


def test_an_anonymous_token_is_fetched_where_one_is_offered(pull: Puller) -> None:
    script = _whole(**{"/token": _json({"token": _TOKEN})})
    script.token = _TOKEN
    steps = pull(script)
    assert _code(steps) is Code.PullWorks
    assert "401 with a challenge" in next(step.seen for step in steps if step.stage is Stage.REGISTRY)
    asked = next(path for path, _ in script.asked if path.startswith("/token"))
    assert asked == "/token?scope=repository%3Aimage%3Apull&service=registry"
    assert all("Authorization" not in headers for path, headers in script.asked if "/token" in path)


def test_the_index_leads_to_this_platform(pull: Puller) -> None:
    steps = pull(_whole(manifest=_json(INDEX), **{"/v2/image/manifests/sha256:1": _json(MANIFEST)}))
    assert _code(steps) is Code.PullWorks
    assert f"linux/{_MACHINE}" in next(step.seen for step in steps if step.stage is Stage.MANIFEST)


@pytest.mark.parametrize(
    ("replies", "code", "words"),
    [
        ({"root": (404, {}, b"")}, Code.PullNotRegistry, "this is not a registry"),
        ({"root": (401, {"WWW-Authenticate": "Basic realm=x"}, b"")}, Code.PullCredentials, "Basic"),
        ({"manifest": (404, {}, b"")}, Code.PullManifest, "no such image or tag"),
        ({"manifest": (403, {}, b"")}, Code.PullCredentials, "without credentials"),
        ({"manifest": (200, {}, b"<html>")}, Code.PullManifest, "not what a registry sends"),
        ({"manifest": _json({"manifests": [_FOREIGN]})}, Code.PullManifest, "no image for"),
        ({"manifest": _json({"manifests": ["x"]})}, Code.PullManifest, "$.manifests[0]"),
        ({"layer": (200, {}, LAYER[:100])}, Code.PullLayer, "100 of 4096 bytes"),
        ({"layer": (500, {}, b"")}, Code.PullLayer, "HTTP 500"),
        (
            {"layer": (302, {"Location": f"/v2/image/blobs/{DIGEST}"}, b"")},
            Code.PullLayer,
            "more than 5 redirects",
        ),
    ],
)
def test_where_it_breaks_is_reported(
    pull: Puller,
    replies: dict[str, Reply],
    code: Code,
    words: str,
) -> None:
    steps = pull(_whole(**replies))
    assert _code(steps) is code
    assert words in steps[-1].seen


def test_a_layer_may_lie_elsewhere(pull: Puller) -> None:
    script = _whole(layer=(307, {"Location": "/storage"}, b""), **{"/storage": (206, {}, LAYER[:4096])})
    assert _code(pull(script)) is Code.PullWorks


def _unvisited(inner: socket.socket) -> bool:
    """Whether no connection came, of which the backlog would tell."""
    return select.select([inner], [], [], 0) == ([], [], [])


@pytest.mark.parametrize("url", ["https://127.0.0.2:{port}/x", "http://127.0.0.2:{port}/x"])
@pytest.mark.parametrize("place", ["layer", "root", "manifest"])
def test_a_redirect_leads_to_no_inner_service(pull: Puller, url: str, place: str) -> None:
    with socket.create_server(("127.0.0.2", 0)) as inner:
        location = url.format(port=inner.getsockname()[1])
        steps = pull(_whole(**{place: (302, {"Location": location}, b"")}))
        assert "not followed" in steps[-1].seen
        assert not steps[-1].ok
        assert _unvisited(inner)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.2",
            "169.254.169.254",
            "10.96.0.1",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.2",
            "0.0.0.0",
            "fd00::1",
        ),
        *("64:ff9b::a9fe:a9fe", "168.63.129.16", "192.0.0.192", "fec0::1", "::ffff:0:169.254.169.254"),
    ],
)
def test_a_name_of_an_inner_address_is_not_followed(pull: Puller, address: str) -> None:
    moved = _whole(layer=(302, {"Location": "https://odd.example.com/x"}, b""))
    steps = pull(moved, **{"odd.example.com": (address,)})
    assert steps[-1].stage is Stage.LAYER
    assert f"not followed: {ip_address(address)} is neither" in steps[-1].seen


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_a_server_that_trickles_is_given_up_in_time(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Wherever it does so: in its status line, its headers, or the body."""
    monkeypatch.setattr("nodeagent.sources.probes.registry_http._SECONDS", 1.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    trusting = ssl.create_default_context(cafile=str(certificates.ca))
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as server:
        trickling = server.submit(_trickle, listening, context, sent)
        image = ImageReference.parse(f"localhost:{listening.getsockname()[1]}/image")
        http = RegistryHttp(image, lambda _: (ip_address("127.0.0.1"),), trusting)
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match="the answer took too long"):
            http.get(f"https://{image.authority}/v2/", {}, 4096)
        assert time.monotonic() - began < 5
        trickling.result()


def _trickle(listening: socket.socket, context: ssl.SSLContext, sent: bytes) -> None:
    """Answer one client with a byte in each tenth of a second, until it goes."""
    with context.wrap_socket(listening.accept()[0], server_side=True) as client, suppress(OSError):
        client.sendall(sent)
        while True:
            client.sendall(b"x")
            time.sleep(0.1)  # the pace of the trickle


def test_a_realm_leads_to_no_inner_service(pull: Puller) -> None:
    with socket.create_server(("127.0.0.2", 0)) as inner:
        realm = f"https://127.0.0.2:{inner.getsockname()[1]}/token"
        steps = pull(_whole(root=(401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'}, b"")))
        assert "not followed" in steps[-1].seen
        assert _unvisited(inner)
    steps = pull(_whole(root=(401, {"WWW-Authenticate": 'Bearer realm="http://example.com/"'}, b"")))
    assert "no https address" in steps[-1].seen


@pytest.mark.parametrize("digest", ["../../../token", "sha256:1\r\nX: y", "", "sha256:1/../../x"])
def test_a_digest_that_is_none_is_not_fetched(pull: Puller, digest: str) -> None:
    script = _whole(manifest=_json({"layers": [{"digest": digest, "size": 1}]}))
    steps = pull(script)
    assert steps[-1].seen.endswith("is not a digest")
    assert [path for path, _ in script.asked] == ["/v2/", "/v2/image/manifests/latest"]


def test_a_token_that_would_be_a_header_of_its_own_is_not_sent(pull: Puller) -> None:
    script = _whole(**{"/token": _json({"token": "x\r\nX-Evil: 1"})})
    script.token = _TOKEN
    assert "returned no token" in pull(script)[-1].seen


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["manifests", "layers", "digest", "size", "platform", "os", "architecture", "token"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["root", "manifest", "layer", "/token", "/v2/image/manifests/sha256:1"]),
        st.tuples(
            st.sampled_from([200, 200, 206, 301, 401, 404, 500]),
            st.dictionaries(
                st.sampled_from(["Location", "WWW-Authenticate"]),
                st.sampled_from(
                    ["/v2/", "//", "https://[::1", "https://x:y/", "Bearer", 'Bearer realm="/"', "x"]
                ),
            ),
            _json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20),
        ),
        min_size=1,
    )
)
def test_whatever_a_registry_answers(pull: Puller, replies: dict[str, Reply]) -> None:
    steps = pull(_whole(**replies))
    assert steps
    assert all(step.seen.isprintable() for step in steps)
    assert pull_finding("image", steps, "").seen


def test_a_certificate_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_certificates(tmp_path / "other", ["else.example.com"])
    monkeypatch.setenv("SSL_CERT_FILE", str(other.ca))
    with _registry(_whole(), other) as port:
        steps = rehearse(
            ImageReference.parse(f"localhost:{port}/image"),
            lambda _: (ip_address("127.0.0.1"),),
            verifying_context(),
        )
    assert _code(steps) is Code.PullCertificate
    assert "mismatch" in steps[-1].seen.lower()


def test_the_first_address_that_takes_a_connection_is_used(pull: Puller) -> None:
    assert _code(pull(_whole(), localhost=("127.0.0.9", "127.0.0.1"))) is Code.PullWorks
    steps = pull(_whole(), localhost=("127.0.0.9",))
    assert _code(steps) is Code.PullConnect
    assert re.search(r"127\.0\.0\.9:\d+: connection refused", steps[-1].seen)


def test_what_ends_before_http() -> None:
    image = ImageReference.parse("registry.example.com/image")
    assert _code(rehearse(image, lambda _: (), verifying_context())) is Code.PullName
    cut = PullStep(Stage.TLS, ok=False, seen="reset", outcome=ProbeOutcome(Ending.RESET_IN_HANDSHAKE))
    assert _code((cut,)) is Code.PullCut
    refused = PullStep(Stage.CONNECT, ok=False, seen="refused", outcome=ProbeOutcome(Ending.REFUSED))
    assert _code((refused,)) is Code.PullConnect
    assert "this test does not use them" in pull_finding("image", (cut,), "/etc/containerd/x").evidence[-1]


@pytest.mark.parametrize(
    ("text", "host", "port", "repository", "reference"),
    [
        ("nginx", "registry-1.docker.io", 443, "library/nginx", "latest"),
        ("me/app:1", "registry-1.docker.io", 443, "me/app", "1"),
        ("docker.io/me/app", "registry-1.docker.io", 443, "me/app", "latest"),
        ("registry.example.com/a/b:v1.2", "registry.example.com", 443, "a/b", "v1.2"),
        ("registry:5000/a", "registry", 5000, "a", "latest"),
        (f"r.example.com/a:t@{DIGEST}", "r.example.com", 443, "a", DIGEST),
    ],
)
def test_image_names(text: str, host: str, port: int, repository: str, reference: str) -> None:
    assert ImageReference.parse(text) == ImageReference(host, port, repository, reference)


@pytest.mark.parametrize(
    "text", ["", "r.example.com/A", "r.example.com:x/a", "a:b c", "r.example.com/a@sha256:1"]
)
def test_what_is_no_image_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not "):
        ImageReference.parse(text)
