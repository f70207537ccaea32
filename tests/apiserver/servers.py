"""Where test_requests.py sends its requests: the simulated API server, and a real one if there is one.

`KUBE_APISERVER=/path/to/kube-apiserver ETCD=/path/to/etcd`: these programs, on loopback.
"""

import base64
import json
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.testbed.waiting import wait_until

from .access import DEFAULT_USER, rules_bound_to
from .listener import free_ports
from .resources import Object
from .server import ApiServer
from .wire import Peer, exchange, request

KUBE_APISERVER = os.environ.get("KUBE_APISERVER", "")
ETCD = os.environ.get("ETCD", "")
ADMIN, LIMITED, WRONG = "admin-token", "limited-token", "wrong-token"
_SECONDS = 90.0
_OLD_REVISIONS = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test, with versions that it has forgotten.

    Attributes:
        limited: as the ServiceAccount kube-system/nodeagent, which may do what its bindings say.
        stranger: with a token of no user.
        compact: makes the storage forget its history.
        grant: creates roles and bindings.
        restart: kills the server, and starts it again; returns before it answers. Only of a real one.
    """

    admin: Peer
    limited: Peer
    stranger: Peer
    anonymous: Peer
    compact: Callable[[], None]
    grant: Callable[[list[Object]], None]
    restart: Callable[[], None] = lambda: None


def _server(
    peer: Callable[[str], Peer], compact: Callable[[], None], grant: Callable[[list[Object]], None]
) -> Server:
    return Server(peer(ADMIN), peer(LIMITED), peer(WRONG), peer(""), compact, grant)


@contextmanager
def simulated() -> Iterator[Server]:
    """Run the simulated server."""
    with ApiServer() as api:
        api.access.require_token(ADMIN, "admin")
        api.access.require_token(LIMITED, DEFAULT_USER)
        api.access.allow_only([], DEFAULT_USER)
        for number in range(_OLD_REVISIONS):
            api.store.create({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": f"s{number}"}})
        api.store.compact()

        def grant(documents: list[Object]) -> None:
            api.access.allow_only(rules_bound_to(documents, "kube-system", "nodeagent"), DEFAULT_USER)

        yield _server(lambda token: Peer(api.port, token), api.store.compact, grant)


@contextmanager
def real(folder: Path, address: str = "") -> Iterator[Server]:
    """Run etcd and kube-apiserver in the calling thread's network; begins once it is ready.

    Args:
        folder: for their data, certificates and logs.
        address: where others reach it; without one, it listens on loopback alone.
    """
    client, members, port = free_ports(3)
    etcd = f"http://127.0.0.1:{client}"
    (folder / "tokens.csv").write_text(
        f"{ADMIN},admin,admin,system:masters\n{LIMITED},{DEFAULT_USER},limited\n"
    )
    key = _signing_key(folder)

    def ask_etcd(path: str, body: Object) -> Object:
        asked = urllib.request.Request(f"{etcd}/v3/kv/{path}", json.dumps(body).encode())  # noqa: S310 - loopback
        with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - loopback
            found: Object = json.load(answer)
        return found

    def compact() -> None:
        revision = ask_etcd("range", {"key": _base64("x")})["header"]["revision"]
        ask_etcd("compaction", {"revision": revision, "physical": True})

    def grow() -> bool:
        try:
            return int(ask_etcd("put", {"key": _base64("x")})["header"]["revision"]) > _OLD_REVISIONS
        except OSError:
            return False  # it does not listen yet

    with ExitStack() as stack:
        run = [ETCD, "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd]
        run += ["--advertise-client-urls", etcd, "--listen-peer-urls", f"http://127.0.0.1:{members}"]
        stack.enter_context(_running(run, folder / "etcd.log"))
        wait_until(grow, "etcd to be ready", seconds=_SECONDS)
        run = [KUBE_APISERVER, f"--etcd-servers={etcd}", f"--cert-dir={folder}", f"--secure-port={port}"]
        run += ["--bind-address=0.0.0.0" if address else "--bind-address=127.0.0.1"]
        run += [f"--advertise-address={address or '192.0.2.1'}", "--authorization-mode=RBAC"]
        run += [f"--token-auth-file={folder}/tokens.csv"]
        run += ["--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"]
        run += ["--service-account-issuer=https://test", f"--service-account-key-file={key}"]
        run += [f"--service-account-signing-key-file={key}"]
        # No controller manager makes ServiceAccounts. IngressClasses are read from etcd: there, history ends.
        run += ["--disable-admission-plugins=ServiceAccount"]
        run += ["--watch-cache-sizes=ingressclasses.networking.k8s.io#0"]
        process = stack.enter_context(_running(run, folder / "kube-apiserver.log"))

        def restart() -> None:
            nonlocal process
            _kill(process)
            process = stack.enter_context(_running(run, folder / "kube-apiserver.log"))

        # Its certificate is for a cluster's names; this is loopback.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        admin = Peer(port, ADMIN, context)

        def ready() -> bool:
            assert process.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
            try:
                return exchange(admin, "GET", "/readyz")[2] == b"ok"
            except OSError:
                return False  # it does not listen yet

        def grant(documents: list[Object]) -> None:
            for obj in documents:
                namespace = obj["metadata"].get("namespace")
                where = f"/namespaces/{namespace}" if namespace else ""
                path = f"/apis/{obj['apiVersion']}{where}/{obj['kind'].lower()}s"
                status, answer = request(admin, "POST", path, obj)
                assert status == 201, answer

        wait_until(ready, "kube-apiserver to be ready", seconds=_SECONDS)
        yield replace(_server(lambda token: Peer(port, token, context), compact, grant), restart=restart)


def _signing_key(folder: Path) -> Path:
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    return key


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as written, subprocess.Popen(command, stdout=written, stderr=written) as process:
        try:
            yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
