"""A pod's ServiceAccount: TLS, files that are replaced, and what can't be used."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.credentials import ServiceAccount
from tests.apiserver import ApiServer, Tls
from tests.sources.kubernetes.test_connection import LIST, SERVICES, kinds
from tests.sources.kubernetes.test_kubeconfig import certificate

_NAMES = "subjectAltName=IP:127.0.0.1"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """Return the directory of a ServiceAccount."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first\n", encoding="ascii")
    return folder


@pytest.fixture
def api(tmp_path: Path, account: Path) -> Iterator[ApiServer]:
    """Provide a server with TLS that takes the account's token alone."""
    made, key = certificate(tmp_path, "kube-apiserver", _NAMES)
    (account / "ca.crt").write_bytes(made.read_bytes())
    with ApiServer(tls=Tls(made, key, made)) as server:
        server.access.require_token("first")
        yield server


@pytest.fixture
def connection(api: ApiServer, account: Path) -> Iterator[Connection]:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    with Connection(lambda: ServiceAccount(environment, account)) as opened:
        yield opened


def test_a_rotated_token_is_sent_with_the_next_request(
    api: ApiServer, connection: Connection, account: Path
) -> None:
    """On a connection that is open already, and without a request that is refused first."""
    assert kinds(connection) == LIST
    api.access.require_token("second")
    api.access.revoke_token("first")
    (account / "token").write_text("second", encoding="ascii")
    before = len(api.traffic.seen("list", SERVICES))
    assert kinds(connection) == LIST
    assert len(api.traffic.seen("list", SERVICES)) == before + 1


def test_a_token_that_is_refused_or_gone(api: ApiServer, connection: Connection, account: Path) -> None:
    api.access.require_token("second")
    api.access.revoke_token("first")
    with pytest.raises(errors.UnauthorizedError, match=r"401: .*its ServiceAccount") as caught:
        connection.get_json(SERVICES)
    assert "first" not in str(caught.value)
    (account / "token").unlink()
    with pytest.raises(errors.UnauthorizedError, match=r"credentials can't be renewed: .*token"):
        connection.get_json(SERVICES)


def test_a_rotated_ca_is_used_for_the_next_connection(
    api: ApiServer, connection: Connection, account: Path, tmp_path: Path
) -> None:
    stranger, _ = certificate(tmp_path, "stranger", _NAMES)
    good = (account / "ca.crt").read_bytes()
    assert kinds(connection) == LIST
    (account / "ca.crt").write_bytes(stranger.read_bytes())
    api.stop_listening()
    connection.close()
    api.start_listening()
    with pytest.raises(errors.UnreachableError, match=r"certificate.verify.failed|CERTIFICATE_VERIFY_FAILED"):
        connection.get_json(SERVICES)
    # Half a file, as it is for a moment: the CA that was read last goes on.
    (account / "ca.crt").write_bytes(b"-----BEGIN CERT")
    with pytest.raises(errors.UnreachableError, match=r"certificate.verify.failed|CERTIFICATE_VERIFY_FAILED"):
        connection.get_json(SERVICES)
    (account / "ca.crt").write_bytes(good)
    assert kinds(connection) == LIST


def test_a_server_with_an_ipv6_address(tmp_path: Path, account: Path) -> None:
    """As in a cluster of only IPv6: the variable has the address without brackets."""
    made, key = certificate(tmp_path, "kube-apiserver", "subjectAltName=IP:::1")
    (account / "ca.crt").write_bytes(made.read_bytes())
    with ApiServer("::1", tls=Tls(made, key, made)) as server:
        server.access.require_token("first")
        environment = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        with Connection(lambda: ServiceAccount(environment, account)) as connection:
            assert connection.server == ("::1", server.port)
            connection.get_json("/version")
            with pytest.raises(errors.NotFoundError, match=rf"at \[::1\]:{server.port}: 404"):
                connection.get_json("/api/v1/namespaces/none")


def test_another_hosts_certificate(api: ApiServer, account: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(api.port)}
    with (
        Connection(lambda: ServiceAccount(environment, account)) as connection,
        pytest.raises(errors.UnreachableError, match="localhost"),
    ):
        connection.get_json(SERVICES)


def test_proxies_of_the_environment_are_ignored(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert kinds(connection) == LIST


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("rm token", "token"),
        (": > token", "token is empty"),
        ("rm ca.crt", "ca.crt"),
        ("echo nothing > ca.crt", "no certificate|NO_CERTIFICATE|PEM"),
    ],
)
def test_an_account_that_can_not_be_used_is_named(
    api: ApiServer, account: Path, damage: str, words: str
) -> None:
    subprocess.run(["sh", "-c", damage], cwd=account, check=True)
    with pytest.raises(SourceError, match=f"the pod's ServiceAccount: .*({words})"):
        ServiceAccount({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, account)


def test_a_port_that_is_none(account: Path) -> None:
    with pytest.raises(SourceError, match="KUBERNETES_SERVICE_PORT='x' is not a port"):
        ServiceAccount({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "x"}, account)


def test_the_daemon_in_a_pod_loads_no_official_client(api: ApiServer, account: Path) -> None:
    """It costs 25 MB on every node; urllib3 is imported with it."""
    program = (
        "import sys; from pathlib import Path; import nodeagent.cli.run\n"
        "from nodeagent.sources.kubernetes.connection import Connection\n"
        "from nodeagent.sources.kubernetes.credentials import ServiceAccount\n"
        f"at = {{'KUBERNETES_SERVICE_HOST': '127.0.0.1', 'KUBERNETES_SERVICE_PORT': '{api.port}'}}\n"
        f"c = Connection(lambda: ServiceAccount(at, Path({str(account)!r})))\n"
        f"assert c.get_json({SERVICES!r})\n"
        "print(*{'kubernetes', 'urllib3', 'websocket', 'dns', 'pyroute2'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.strip() == ""
