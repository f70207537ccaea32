import socket
import ssl
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer, Rule, Tls, faults, objects
from tests.sources.kubernetes.watching import until

SERVICES = "/api/v1/services"


def changed(kubeconfig: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    """Change the kubeconfig's cluster, and its user if given."""
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"] |= cluster
    if user is not None:
        document["users"][0]["user"] = user
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kubeconfig


def certificate(folder: Path, name: str, *extension: str) -> tuple[Path, Path]:
    """Make a self-signed certificate and its key."""
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    extensions = [part for text in extension for part in ("-addext", text)]
    subject = ["-subj", f"/CN={name}", *extensions]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(made), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


def kinds(connection: Connection) -> str:
    """Return what a list of services answers."""
    return connection.get_json(SERVICES)[:21].decode()


LIST = '{"kind":"ServiceList"'


def test_the_clients_default_configuration_is_left_alone(api: ApiServer, connection: Connection) -> None:
    assert kinds(connection) == LIST
    assert connection.server == ("127.0.0.1", api.port)
    assert client.Configuration.get_default_copy().host == client.Configuration().host


def test_bytes_are_counted_as_they_came_over_the_wire(api: ApiServer, connection: Connection) -> None:
    api.store.create_many(objects.ingresses(1000))
    body = connection.get_json("/apis/networking.k8s.io/v1/ingresses")
    assert len(body) > 500_000
    assert 0 < connection.bytes_read < len(body) / 5
    until(lambda: api.traffic.bytes_sent > 0, "the server to have counted what it sent")
    assert connection.bytes_read < api.traffic.bytes_sent < connection.bytes_read + 1000


def test_connections_are_used_again(
    api: ApiServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    connect = socket.socket.connect

    def counted(self: socket.socket, address: tuple[str, int]) -> None:
        opened.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", counted)
    for _ in range(3):
        assert kinds(connection) == LIST
    api.faults.add(faults.Answer(404), path=SERVICES)
    with pytest.raises(errors.NotFoundError):
        connection.get_json(SERVICES)
    assert kinds(connection) == LIST
    assert opened == [("127.0.0.1", api.port)]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (faults.Answer(503, retry_after=3), errors.ServerTroubleError, "503"),
        (faults.Answer(410), errors.GoneError, "a new list is needed"),
        (faults.Answer(404), errors.NotFoundError, "404"),
        (faults.html_page(), errors.NotJsonError, "is text/html; charset=utf-8, not JSON"),
        (faults.html_page(502), errors.ServerTroubleError, "502"),
        (faults.Disconnect(), errors.UnreachableError, "Remote end closed connection"),
        # Over TLS a reset may look like an end.
        (
            faults.Disconnect(reset=True),
            errors.UnreachableError,
            "reset by peer|Remote end closed",
        ),
        (faults.CutBody(after=30), errors.UnreachableError, "at 127.0.0.1:"),
    ],
)
def test_each_failure_has_its_error(
    api: ApiServer,
    connection: Connection,
    fault: faults.RequestFault,
    kind: type[errors.ApiError],
    words: str,
) -> None:
    api.faults.add(fault, path=SERVICES)
    with pytest.raises(kind, match=words):
        connection.get_json(SERVICES)
    assert kinds(connection) == LIST


def test_a_server_that_is_away(api: ApiServer, connection: Connection) -> None:
    api.stop_listening()
    with pytest.raises(errors.UnreachableError, match=f"127.0.0.1:{api.port}: Connection refused"):
        connection.get_json(SERVICES)
    api.start_listening()
    assert kinds(connection) == LIST


def test_a_server_that_does_not_answer(api: ApiServer, connection: Connection) -> None:
    hold = faults.Hold()
    api.faults.add(hold)
    with pytest.raises(errors.UnreachableError, match="no answer in time"):
        connection.get_json(SERVICES, timeout=0.1)
    hold.release()


def test_forbidden_names_the_rule_and_passes_once_granted(api: ApiServer, connection: Connection) -> None:
    api.access.allow_only([])
    with pytest.raises(errors.ForbiddenError, match=r'resources: \["services"\], verbs: \["list", "watch"\]'):
        connection.get_json(SERVICES)
    api.access.allow_only([Rule([""], ["services"], ["list"])])
    assert kinds(connection) == LIST


def test_a_token_file_is_read_again_once_its_token_is_refused(api: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old", encoding="utf-8")
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {}, {"tokenFile": "token"})
    api.access.require_token("old")
    with connect(kubeconfig) as connection:
        assert kinds(connection) == LIST
        api.access.require_token("new")
        api.access.revoke_token("old")
        with pytest.raises(errors.UnauthorizedError, match="does not accept these credentials"):
            connection.get_json(SERVICES)
        (tmp_path / "token").write_text("new", encoding="utf-8")
        assert kinds(connection) == LIST


def test_no_token_where_one_is_needed(api: ApiServer, tmp_path: Path) -> None:
    kubeconfig = api.write_kubeconfig(tmp_path / "config")
    api.access.require_token("secret")
    with (
        connect(kubeconfig) as connection,
        pytest.raises(errors.UnauthorizedError, match="no credentials") as caught,
    ):
        connection.get_json(SERVICES)
    assert "secret" not in str(caught.value)


def test_an_exec_plugin_is_run_again_once_its_token_is_refused(api: ApiServer, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":'
    plugin.write_text(f"#!/bin/sh\nprintf '%s\"%s\"}}}}' '{credential}' \"$(cat {tmp_path}/token)\"\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "token").write_text("first", encoding="utf-8")
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "args": []}
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {}, {"exec": run})
    api.access.require_token("first")
    with connect(kubeconfig) as connection:
        assert kinds(connection) == LIST
        api.access.require_token("second")
        api.access.revoke_token("first")
        (tmp_path / "token").write_text("second", encoding="utf-8")
        assert kinds(connection) == LIST


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    """Provide a server that asks for a client's certificate, and a kubeconfig that has one."""
    made, key = certificate(tmp_path, "kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:kube.example")
    client_made, client_key = certificate(tmp_path, "node")
    api = ApiServer(tls=Tls(made, key, made))
    context = api._context  # noqa: SLF001 - client certificates are not among the server's options
    assert context is not None
    context.load_verify_locations(client_made)
    context.verify_mode = ssl.CERT_REQUIRED
    with api:
        user = {"client-certificate": str(client_made), "client-key": str(client_key)}
        yield api, changed(api.write_kubeconfig(tmp_path / "config"), {}, user)


def test_tls_with_a_ca_and_a_client_certificate(secure: tuple[ApiServer, Path]) -> None:
    api, kubeconfig = secure
    with connect(kubeconfig) as connection:
        assert kinds(connection) == LIST
        query = {"watch": "true", "resourceVersion": str(api.store.revision)}
        stream = connection.stream_lines(SERVICES, query)
        api.store.create(objects.service("web"))
        assert next(stream).startswith(b'{"type":"ADDED"')
        stream.interrupt()
        with pytest.raises((StopIteration, errors.UnreachableError)):
            next(stream)
        stream.close()


def test_tls_without_the_client_certificate(secure: tuple[ApiServer, Path]) -> None:
    _, kubeconfig = secure
    with connect(changed(kubeconfig, {}, {})) as connection, pytest.raises(errors.UnreachableError):
        connection.get_json(SERVICES)


def test_tls_by_a_server_without_a_trusted_authority(secure: tuple[ApiServer, Path], tmp_path: Path) -> None:
    _, kubeconfig = secure
    stranger, _ = certificate(tmp_path, "stranger")
    changed(kubeconfig, {"certificate-authority": str(stranger)})
    with (
        connect(kubeconfig) as connection,
        pytest.raises(errors.UnreachableError, match=r"certificate.verify.failed|CERTIFICATE_VERIFY_FAILED"),
    ):
        connection.get_json(SERVICES)


@pytest.mark.parametrize(("name", "good"), [("kube.example", True), ("other.example", False)])
def test_tls_server_name(secure: tuple[ApiServer, Path], name: str, good: bool) -> None:  # noqa: FBT001
    _, kubeconfig = secure
    with connect(changed(kubeconfig, {"tls-server-name": name})) as connection:
        if good:
            assert kinds(connection) == LIST
        else:
            with pytest.raises(errors.UnreachableError, match=r"other\.example"):
                connection.get_json(SERVICES)


def test_a_proxy_is_used_unless_it_is_disabled(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {"server": "http://kube.invalid:6443"})
    # The simulated server reads only the path of an absolute target: it can play the proxy.
    monkeypatch.setenv("HTTP_PROXY", api.url)
    with connect(kubeconfig) as connection:
        assert connection.server == ("kube.invalid", 6443)
        assert kinds(connection) == LIST
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,.invalid")
    with connect(kubeconfig) as connection, pytest.raises(errors.UnreachableError):
        connection.get_json(SERVICES)
    assert len(api.traffic.seen("list", SERVICES)) == 1
    monkeypatch.delenv("NO_PROXY")
    api.stop_listening()
    with (
        connect(kubeconfig) as connection,
        pytest.raises(
            errors.UnreachableError, match=f"through the proxy 127.0.0.1:{api.port}: Connection refused"
        ),
    ):
        connection.get_json(SERVICES)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            None,
            "No configuration found; nothing was changed. Pass the cluster's kubeconfig: --kubeconfig FILE",
        ),
        ("", "can't be used to reach the API server"),
        ("{", "can't be used to reach the API server"),
        ("kind: Config", "can't be used to reach the API server"),
        ("[]", "can't be used to reach the API server"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, written: str | None, words: str) -> None:
    file = tmp_path / "config"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    with pytest.raises(SourceError, match=words) as caught:
        connect(file)
    assert str(file) in str(caught.value)


def test_where_the_configuration_is_looked_for(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = api.write_kubeconfig(tmp_path / "config")
    with connect(environment={"KUBECONFIG": str(kubeconfig)}) as connection:
        assert connection.server == ("127.0.0.1", api.port)
    home = tmp_path / "home" / ".kube"
    home.mkdir(parents=True)
    kubeconfig.rename(home / "config")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with connect(environment={}) as connection:
        assert connection.server == ("127.0.0.1", api.port)
    with pytest.raises(SourceError, match="the pod's ServiceAccount"):
        connect(environment={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})


@pytest.fixture
def lines(api: ApiServer, connection: Connection) -> Iterator[Callable[[], Any]]:
    """Provide what opens a watch on services, closed in the end."""
    opened = []

    def watch() -> Any:  # noqa: ANN401
        query = {"watch": "true", "resourceVersion": str(api.store.revision)}
        opened.append(connection.stream_lines(SERVICES, query, idle_timeout=0.3))
        return opened[-1]

    yield watch
    for stream in opened:
        stream.close()


def test_a_line_cut_in_the_middle_is_dropped(api: ApiServer, lines: Callable[[], Any]) -> None:
    stream = lines()
    api.store.create(objects.service("a"))
    assert b'"name":"a"' in next(stream)
    api.faults.add(faults.CutLine())
    api.store.create(objects.service("b"))
    with pytest.raises(errors.UnreachableError):
        next(stream)


def test_a_silent_stream_is_given_up(lines: Callable[[], Any]) -> None:
    with pytest.raises(errors.UnreachableError, match="no answer in time"):
        next(lines())


def test_html_instead_of_a_stream(api: ApiServer, lines: Callable[[], Any]) -> None:
    api.faults.add(faults.html_page(), verbs={"watch"})
    with pytest.raises(errors.NotJsonError):
        lines()
