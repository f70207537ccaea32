import subprocess
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.credentials import service_account
from tests.apiserver import ApiServer, Tls, objects
from tests.cases import cases_of
from tests.sources.kubernetes.test_connection import LIST, SERVICES, kinds, refused
from tests.sources.kubernetes.watching import until
from tests.testbed.certificates import make_certificate

_WHERE = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
_NAMES = "subjectAltName=IP:127.0.0.1"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first\n", encoding="ascii")
    return folder


@pytest.fixture
def api(tmp_path: Path, account: Path) -> Iterator[ApiServer]:
    """Provide a server with TLS that takes the account's token alone."""
    made, key = make_certificate(tmp_path, "kube-apiserver", _NAMES)
    (account / "ca.crt").write_bytes(made.read_bytes())
    with ApiServer(tls=Tls(made, key, made)) as server:
        server.access.require_token("first")
        yield server


def connect(server: ApiServer, account: Path, host: str = "127.0.0.1") -> Connection:
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(server.port)}
    return Connection(lambda: service_account(environment, account))


@pytest.fixture
def connection(api: ApiServer, account: Path) -> Iterator[Connection]:
    with connect(api, account) as opened:
        yield opened


def test_a_day_of_rotated_tokens(api: ApiServer, connection: Connection, account: Path) -> None:
    """As by the kubelet: a new one is there, and good, before the old one ends; requests go on all day."""
    answered: tuple[list[str], list[str]] = ([], [])
    stopped = threading.Event()

    def ask(into: list[str]) -> None:
        while not stopped.is_set():
            into.append(kinds(connection))

    others = [threading.Thread(target=ask, args=(into,)) for into in answered]
    for thread in others:
        thread.start()
    tokens = ["first", *(f"hour-{hour}" for hour in range(24))]
    for before, token in pairwise(tokens):
        api.access.require_token(token)
        fresh = account / "..data"
        fresh.write_text(token, encoding="ascii")
        fresh.replace(account / "token")
        api.access.revoke_token(before)
        assert kinds(connection) == LIST
        assert connection.write("create", "/api/v1/namespaces/default/configmaps", objects.config_map(token))
        # No request lasts from one hour to the one after the next.
        so_far = [len(into) for into in answered]
        until(
            lambda: all(len(into) >= 2 + past for into, past in zip(answered, so_far, strict=True)),  # noqa: B023
            "requests by the others",
        )
    stopped.set()
    for thread in others:
        thread.join(30)
    assert {*answered[0], *answered[1]} == {LIST}


def test_a_token_that_is_refused_or_gone(api: ApiServer, connection: Connection, account: Path) -> None:
    api.access.require_token("second")
    api.access.revoke_token("first")
    assert "first" not in refused(connection, errors.UnauthorizedError, r"401: .*the ServiceAccount")
    (account / "token").unlink()
    refused(connection, errors.UnauthorizedError, r"credentials can't be renewed: .*token")


def test_a_rotated_ca_is_used_once_tls_has_failed(api: ApiServer, account: Path, tmp_path: Path) -> None:
    stranger, _ = make_certificate(tmp_path, "stranger", _NAMES)
    good = (account / "ca.crt").read_bytes()
    (account / "ca.crt").write_bytes(stranger.read_bytes())
    with connect(api, account) as connection:
        words = r"(?i)certificate.verify.failed.*check .* its address and CA"
        refused(connection, errors.UnreachableError, words)
        (account / "ca.crt").write_bytes(b"-----BEGIN CERT")
        refused(connection, errors.UnauthorizedError, r"the pod's ServiceAccount: can't be used")
        with pytest.raises(errors.UnauthorizedError, match="credentials can't be renewed"):
            connection.open_stream(SERVICES, {"watch": "true"})
        (account / "ca.crt").write_bytes(good)
        created = objects.config_map("a")
        # A write is not repeated, but the next request uses what is there now.
        with pytest.raises(errors.UnreachableError):
            connection.write("create", "/api/v1/namespaces/default/configmaps", created)
        assert connection.write("create", "/api/v1/namespaces/default/configmaps", created)
        assert kinds(connection) == LIST


def test_a_server_with_an_ipv6_address(tmp_path: Path, account: Path) -> None:
    """As in a cluster of only IPv6: the variable has the address without brackets."""
    made, key = make_certificate(tmp_path, "kube-apiserver", "subjectAltName=IP:::1")
    (account / "ca.crt").write_bytes(made.read_bytes())
    with ApiServer("::1", tls=Tls(made, key, made)) as server:
        server.access.require_token("first")
        with connect(server, account, "::1") as connection:
            assert connection.server == ("::1", server.port)
            connection.get_json("/version")
            with pytest.raises(errors.NotFoundError, match=rf"at \[::1\]:{server.port}: 404"):
                connection.get_json("/api/v1/namespaces/none")


def test_certificates_without_an_authority_key_identifier(tmp_path: Path, account: Path) -> None:
    """Clusters have them, and client-go accepts them; OpenSSL's strict checks, as in Python 3.13, do not."""
    ca, ca_key = make_certificate(account, "ca", "keyUsage=critical,keyCertSign")
    unnamed = ("authorityKeyIdentifier=none", "subjectKeyIdentifier=none")
    made, key = make_certificate(tmp_path, "server", _NAMES, *unnamed, by=(ca, ca_key))
    with ApiServer(tls=Tls(made, key, ca)) as server:
        server.access.require_token("first")
        with connect(server, account) as connection:
            assert kinds(connection) == LIST


def test_another_hosts_certificate(api: ApiServer, account: Path) -> None:
    with connect(api, account, "localhost") as connection:
        refused(connection, errors.UnreachableError, "localhost")


def test_proxies_of_the_environment_are_ignored(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert kinds(connection) == LIST


@pytest.mark.parametrize(("damage", "words"), cases_of(__file__, "cases.yaml")["damages"])
def test_an_account_that_can_not_be_used_is_named(
    api: ApiServer, account: Path, damage: str, words: str
) -> None:
    subprocess.run(["sh", "-c", damage], cwd=account, check=True)
    with pytest.raises(SourceError, match=f"the pod's ServiceAccount: .*({words}).*Mount it at {account}"):
        service_account(_WHERE, account)


def test_a_port_that_is_none(api: ApiServer, account: Path) -> None:
    with pytest.raises(SourceError, match="Port could not be cast to integer value as 'x'"):
        service_account({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "x"}, account)
