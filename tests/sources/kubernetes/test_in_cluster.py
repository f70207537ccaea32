"""The transport of a pod: the same behavior as with a kubeconfig, and what a ServiceAccount's files do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.in_cluster import PodTransport
from tests.apiserver import ApiServer, Tls, faults, objects

# The same tests, here with this file's `api` and `connection`.
from tests.sources.kubernetes.test_connection import (  # noqa: F401 - pytest collects them
    LIST,
    SERVICES,
    certificate,
    kinds,
    lines,
    test_a_line_cut_in_the_middle_is_dropped,
    test_a_server_that_does_not_answer,
    test_a_server_that_is_away,
    test_a_silent_stream_is_given_up,
    test_bytes_are_counted_as_they_came_over_the_wire,
    test_connections_are_used_again,
    test_each_failure_has_its_error,
    test_forbidden_names_the_rule_and_passes_once_granted,
    test_html_instead_of_a_stream,
)

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
    with Connection(lambda: PodTransport.of(environment, account)) as opened:
        yield opened


def test_a_rotated_token_is_sent_with_the_next_request(
    api: ApiServer, connection: Connection, account: Path
) -> None:
    """On a connection that is open already, and without a request that is refused first."""
    assert kinds(connection) == LIST
    api.access.require_token("second")
    api.access.revoke_token("first")
    (account / "token").write_text("second", encoding="ascii")
    api.traffic.forget()
    assert kinds(connection) == LIST
    assert len(api.traffic.seen("list", SERVICES)) == 1


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
        with Connection(lambda: PodTransport.of(environment, account)) as connection:
            assert connection.server == ("::1", server.port)
            connection.get_json("/version")
            with pytest.raises(errors.NotFoundError, match=rf"at \[::1\]:{server.port}: 404"):
                connection.get_json("/api/v1/namespaces/none")


def test_another_hosts_certificate(api: ApiServer, account: Path) -> None:
    transport = PodTransport(("localhost", api.port), account)
    with (
        Connection(lambda: transport) as connection,
        pytest.raises(errors.UnreachableError, match="localhost"),
    ):
        connection.get_json(SERVICES)


def test_proxies_of_the_environment_are_ignored(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert kinds(connection) == LIST


def test_a_stream_is_interrupted_by_another_thread(api: ApiServer, connection: Connection) -> None:
    stream = connection.stream_lines(SERVICES, {"watch": "true", "resourceVersion": str(api.store.revision)})
    api.store.create(objects.service("web"))
    assert next(stream).startswith(b'{"type":"ADDED"')
    stream.interrupt()
    with pytest.raises((StopIteration, errors.UnreachableError)):
        next(stream)
    stream.close()
    stream.interrupt()
    assert kinds(connection) == LIST


def test_a_connection_that_the_server_closed_meanwhile(api: ApiServer, connection: Connection) -> None:
    assert kinds(connection) == LIST
    api.stop_listening()
    api.start_listening()
    assert kinds(connection) == LIST


def test_an_answer_beyond_the_bound(api: ApiServer, connection: Connection) -> None:
    """The bound is on what is unpacked: packed, this answer has a few kilobytes."""
    api.store.create_many(objects.ingresses(200))
    with pytest.raises(errors.TooLargeError, match="more than 50000 bytes"):
        connection.get_json("/apis/networking.k8s.io/v1/ingresses", most=50_000)
    assert kinds(connection) == LIST


def test_objects_are_written(api: ApiServer, connection: Connection) -> None:
    path = "/api/v1/namespaces/default/events"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one"},
        "involvedObject": {},
        "message": "Ä",
    }
    connection.post_json(path, event)
    assert '"message":"Ä"' in connection.get_json(f"{path}/one").decode().replace(": ", ":")
    with pytest.raises(errors.AlreadyExistsError):
        connection.post_json(path, event)
    connection.delete_json(f"{path}/one", {})
    with pytest.raises(errors.NotFoundError):
        connection.get_json(f"{path}/one")


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
        PodTransport(("127.0.0.1", api.port), account)


def test_a_port_that_is_none(account: Path) -> None:
    with pytest.raises(SourceError, match="KUBERNETES_SERVICE_PORT='x' is not a port"):
        PodTransport.of({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "x"}, account)


def test_the_daemon_in_a_pod_loads_no_official_client(api: ApiServer, account: Path) -> None:
    """It costs 25 MB on every node; urllib3 is imported with it."""
    program = (
        "import sys; from pathlib import Path; import nodeagent.cli.run\n"
        "from nodeagent.sources.kubernetes.connection import Connection\n"
        "from nodeagent.sources.kubernetes.in_cluster import PodTransport\n"
        f"c = Connection(lambda: PodTransport(('127.0.0.1', {api.port}), Path({str(account)!r})))\n"
        f"assert c.get_json({SERVICES!r})\n"
        "print(*{'kubernetes', 'urllib3', 'websocket', 'rich', 'dns', 'pyroute2'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.strip() == ""


def test_a_refused_watch_is_an_error_like_any_other(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Answer(410), verbs={"watch"})
    with pytest.raises(errors.GoneError):
        connection.stream_lines(SERVICES, {"watch": "true", "resourceVersion": "1"})
