"""Where the suite of requests is sent: to the simulated API server, and to a real one if there is one.

`KUBE_APISERVER=/path/to/kube-apiserver ETCD=/path/to/etcd`: these programs, on loopback.
"""

import json
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
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
        compact: makes the storage forget its history.
        grant: creates roles and bindings, of which those of kube-system/nodeagent are the limited user's.
        restart: kills the server, and starts it again; returns before it answers. Only of a real one.
    """

    port: int
    context: ssl.SSLContext | None
    compact: Callable[[], None]
    grant: Callable[[list[Object]], None]
    restart: Callable[[], None] = lambda: None

    def peer(self, token: str) -> Peer:
        return Peer(self.port, token, self.context)

    @property
    def admin(self) -> Peer:
        return self.peer(ADMIN)

    @property
    def limited(self) -> Peer:
        """As the ServiceAccount kube-system/nodeagent sees it, which may do what its bindings say."""
        return self.peer(LIMITED)


@contextmanager
def simulated() -> Iterator[Server]:
    with ApiServer() as api:
        api.access.require_token(ADMIN, "admin")
        api.access.require_token(LIMITED)
        api.access.allow_only([])
        for number in range(_OLD_REVISIONS):
            api.store.create({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": f"s{number}"}})
        api.store.compact()

        def grant(documents: list[Object]) -> None:
            api.access.allow_only(rules_bound_to(documents, "kube-system", "nodeagent"))

        yield Server(api.port, None, api.store.compact, grant)


@contextmanager
def real(folder: Path, address: str = "") -> Iterator[Server]:
    """Run etcd and kube-apiserver in the calling thread's network; begins once it is ready.

    The folder gets their data, certificates and logs. Without an address it listens on loopback alone.
    """
    client, members, port = free_ports(3)
    etcd = f"http://127.0.0.1:{client}"
    (folder / "tokens.csv").write_text(
        f"{ADMIN},admin,admin,system:masters\n{LIMITED},{DEFAULT_USER},limited\n"
    )
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)

    def write_to_etcd() -> int:
        return int(_etcd(f"{etcd}/v3/kv/put", {"key": "eA=="})["header"]["revision"])

    def compact() -> None:
        _etcd(f"{etcd}/v3/kv/compaction", {"revision": write_to_etcd(), "physical": True})

    def has_old_revisions() -> bool:
        with suppress(OSError):  # it does not listen yet
            return write_to_etcd() > _OLD_REVISIONS
        return False

    with ExitStack() as stack:
        run = [ETCD, f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={etcd}"]
        run += [f"--advertise-client-urls={etcd}", f"--listen-peer-urls=http://127.0.0.1:{members}"]
        stack.enter_context(_running(run, folder / "etcd.log"))
        wait_until(has_old_revisions, "etcd to be ready", seconds=_SECONDS)
        run = [KUBE_APISERVER, f"--etcd-servers={etcd}", f"--cert-dir={folder}", f"--secure-port={port}"]
        run += ["--bind-address=0.0.0.0" if address else "--bind-address=127.0.0.1"]
        run += [f"--advertise-address={address or '192.0.2.1'}", "--authorization-mode=RBAC"]
        run += [f"--token-auth-file={folder}/tokens.csv", "--service-account-issuer=https://test"]
        run += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
        run += ["--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"]
        # No controller manager makes ServiceAccounts. IngressClasses are read from etcd: there, history ends.
        run += ["--disable-admission-plugins=ServiceAccount"]
        run += ["--watch-cache-sizes=ingressclasses.networking.k8s.io#0"]
        process = stack.enter_context(_running(run, folder / "kube-apiserver.log"))

        def restart() -> None:
            nonlocal process
            _kill(process)
            process = stack.enter_context(_running(run, folder / "kube-apiserver.log"))

        def grant(documents: list[Object]) -> None:
            for obj in documents:
                namespace = obj["metadata"].get("namespace")
                where = f"/namespaces/{namespace}" if namespace else ""
                path = f"/apis/{obj['apiVersion']}{where}/{obj['kind'].lower()}s"
                status, answer = request(server.admin, "POST", path, obj)
                assert status == 201, answer

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
            with suppress(OSError):  # it does not listen yet
                return exchange(server.admin, "GET", "/readyz")[2] == b"ok"
            return False

        # Its certificate is for a cluster's names; this is loopback.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        server = Server(port, context, compact, grant, restart)
        wait_until(is_ready, "kube-apiserver to be ready", seconds=_SECONDS)
        yield server


def _etcd(url: str, body: Object) -> Object:
    asked = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310 - loopback
    with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - loopback
        found: Object = json.load(answer)
    return found


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
