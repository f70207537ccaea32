import json
import ssl
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import credentials, errors
from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer, Rule, Tls
from tests.cases import cases_of
from tests.sources.kubernetes.passage import Passage
from tests.sources.kubernetes.test_connection import LIST, SERVICES, interrupted, kinds, refused
from tests.testbed.certificates import make_certificate

CASES = cases_of(__file__, "cases.yaml")


def changed(kubeconfig: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    """Change the kubeconfig's cluster (None removes), and its user if given."""
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    merged = document["clusters"][0]["cluster"] | cluster
    document["clusters"][0]["cluster"] = {key: value for key, value in merged.items() if value is not None}
    if user is not None:
        document["users"][0]["user"] = user
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kubeconfig


def test_the_clients_default_configuration_is_left_alone(api: ApiServer, connection: Connection) -> None:
    assert kinds(connection) == LIST
    assert connection.server == ("127.0.0.1", api.port)
    assert client.Configuration.get_default_copy().host == client.Configuration().host


_EXEC = "client.authentication.k8s.io/v1"


def user_by(how: str, folder: Path) -> dict[str, Any]:
    """Build a kubeconfig's user whose token is in the folder: in its file, or printed by a plugin."""
    token, plugin = folder / "token", folder / "plugin"
    status = {"token": "$(cat token)"}
    if how == "exec, expired":
        status["expirationTimestamp"] = "2026-01-01T00:00:00Z"
    said = json.dumps({"apiVersion": _EXEC, "kind": "ExecCredential", "status": status})
    plugin.write_text(f"#!/bin/sh\ncd {folder}\ncat <<END\n{said}\nEND\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    if how == "tokenFile":
        return {"tokenFile": token.name}
    return {"exec": {"apiVersion": _EXEC, "command": str(plugin), "args": []}}


@pytest.mark.parametrize("how", ["tokenFile", "exec", "exec, expired"])
def test_a_token_is_read_again_once_it_is_refused_or_has_expired(
    api: ApiServer, tmp_path: Path, how: str
) -> None:
    """From a file, or from a plugin; one that says when it expires is asked before a request is refused."""
    token = tmp_path / "token"
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {}, user_by(how, tmp_path))
    token.write_text("old", encoding="utf-8")
    api.access.require_token("old")
    with connect(kubeconfig) as connection:
        assert kinds(connection) == LIST
        api.access.require_token("new")
        api.access.revoke_token("old")
        if how != "exec, expired":
            refused(connection, errors.UnauthorizedError, "does not accept these credentials")
        token.write_text("new", encoding="utf-8")
        assert kinds(connection) == LIST


def test_a_plugin_that_is_waited_for_is_named(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(credentials, "_PATIENCE_SECONDS", 0.1)
    user = user_by("exec", tmp_path)
    (tmp_path / "token").write_text("old", encoding="utf-8")
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {}, user)
    connect(kubeconfig).close()
    assert not caplog.messages
    plugin = tmp_path / "plugin"
    plugin.write_text(plugin.read_text("utf-8").replace("cd", "sleep 0.5\ncd"), encoding="utf-8")
    connect(kubeconfig).close()
    assert f"Waiting for the kubeconfig's plugin {plugin}" in caplog.text


def test_a_kubeconfig_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"#" * 5_000_000)
    with pytest.raises(SourceError, match="it has more than 4194304 bytes"):
        connect(tmp_path / "config")


def test_no_token_where_one_is_needed(api: ApiServer, tmp_path: Path) -> None:
    kubeconfig = api.write_kubeconfig(tmp_path / "config")
    api.access.require_token("secret")
    with connect(kubeconfig) as connection:
        assert "secret" not in refused(connection, errors.UnauthorizedError, "no credentials")


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    """Provide a server that asks for a client's certificate, and a kubeconfig that has one."""
    made, key = make_certificate(tmp_path, "kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:kube.example")
    client_made, client_key = make_certificate(tmp_path, "node")
    api = ApiServer(tls=Tls(made, key, made))
    assert api.context is not None
    api.context.load_verify_locations(client_made)
    api.context.verify_mode = ssl.CERT_REQUIRED
    with api:
        user = {"client-certificate": str(client_made), "client-key": str(client_key)}
        yield api, changed(api.write_kubeconfig(tmp_path / "config"), {}, user)


def test_tls_with_a_ca_and_a_client_certificate(secure: tuple[ApiServer, Path]) -> None:
    api, kubeconfig = secure
    with connect(kubeconfig) as connection:
        assert kinds(connection) == LIST
        interrupted(api, connection)


@pytest.mark.parametrize("cluster", CASES["tls_works"])
def test_tls_as_the_kubeconfig_wants_it(secure: tuple[ApiServer, Path], cluster: dict[str, Any]) -> None:
    with connect(changed(secure[1], cluster)) as connection:
        assert kinds(connection) == LIST


@pytest.mark.parametrize(("cluster", "user", "words"), CASES["tls_fails"])
def test_tls_that_fails(
    secure: tuple[ApiServer, Path],
    tmp_path: Path,
    cluster: dict[str, Any],
    user: dict[str, Any] | None,
    words: str,
) -> None:
    make_certificate(tmp_path, "stranger")
    with connect(changed(secure[1], cluster, user)) as connection:
        refused(connection, errors.UnreachableError, words)


def test_what_is_replaced_is_used_with_the_next_connection(
    secure: tuple[ApiServer, Path], tmp_path: Path
) -> None:
    """A CA, an address, or the file of a certificate, once TLS has failed."""
    api, kubeconfig = secure
    crt, key = make_certificate(tmp_path, "stranger", "subjectAltName=IP:127.0.0.1")
    with ApiServer(tls=Tls(crt, key, crt)) as other:
        text = kubeconfig.read_text("utf-8")
        for spoiled in (
            {kubeconfig: text.replace(api.url, other.url)},
            {kubeconfig: text.replace("kube-apiserver.crt", "stranger.crt")},
            {tmp_path / "node.crt": crt.read_text(), tmp_path / "node.key": key.read_text()},
        ):
            good = {file: file.read_text("utf-8") for file in spoiled}
            _write_all(spoiled)
            with connect(kubeconfig) as connection:
                refused(connection, errors.UnreachableError)
                _write_all(good)
                assert kinds(connection) == LIST
                assert connection.server == ("127.0.0.1", api.port)


def _write_all(texts: dict[Path, str]) -> None:
    for file, text in texts.items():
        file.write_text(text, "utf-8")


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
    with connect(kubeconfig) as connection:
        refused(connection, errors.UnreachableError)
    assert len(api.traffic.seen("list", SERVICES)) == 1
    monkeypatch.delenv("NO_PROXY")
    api.stop_listening()
    with connect(kubeconfig) as connection:
        words = f"through the proxy 127.0.0.1:{api.port}: Connection refused"
        refused(connection, errors.UnreachableError, words)


_TEXT_FOR_MAPPINGS = """
clusters: [{name: x, cluster: text}]
contexts: [{name: x, context: {cluster: x, user: u}}]
users: [{name: u, user: text}]
current-context: x
"""


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, r"there is no such file; .* --kubeconfig FILE, or set KUBECONFIG \(k3s: /etc/rancher"),
        *((text, "can't be used to reach the API server") for text in ("", "{", "kind: Config", "[]")),
        ("just text", "it does not have the form of a kubeconfig"),
        (_TEXT_FOR_MAPPINGS, "it does not have the form of a kubeconfig"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, written: str | None, words: str) -> None:
    file = tmp_path / "config"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    with pytest.raises(SourceError, match=words) as caught:
        connect(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("user", CASES["secrets"])
def test_no_error_quotes_a_users_secrets(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, user: dict[str, Any]
) -> None:
    """The official client's errors quote the whole user."""
    file = changed(api.write_kubeconfig(tmp_path / "config"), {}, user)
    with pytest.raises(SourceError, match=r"its user/.* has no") as caught:
        connect(file)
    assert "s3cret" not in str(caught.value)
    assert not caplog.messages, "what the client logs is the error's text"


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


def test_a_server_behind_a_path(api: ApiServer, tmp_path: Path) -> None:
    """As with a management plane that has many clusters behind one address."""
    server = {"server": f"{api.url}/k8s/clusters/c-1/"}
    with connect(changed(api.write_kubeconfig(tmp_path / "config"), server)) as connection:
        refused(connection, errors.NotFoundError)
    assert api.traffic.seen("*")[-1].path == f"/k8s/clusters/c-1{SERVICES}"


def test_impersonation_is_asked_for(api: ApiServer, tmp_path: Path) -> None:
    """Otherwise a request would be allowed that `kubectl` with the same file may not make."""
    api.access.require_token("admin")
    api.access.allow_only([Rule([""], ["nodes"], ["list"])], "limited")
    more = {"as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["x", "y"]}}
    user = {"token": "admin", "as": "limited", **more}
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {}, user)
    with connect(kubeconfig) as connection:
        refused(connection, errors.ForbiddenError, 'User "limited"')
    assert [*credentials.kubeconfig(str(kubeconfig)).default_headers.items()] == [
        ("Impersonate-User", "limited"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "x"),
        ("Impersonate-Extra-scopes", "y"),
    ]


def test_a_tunnel_through_a_proxy(secure: tuple[ApiServer, Path]) -> None:
    api, kubeconfig = secure
    with closing(Passage()) as proxy:
        changed(kubeconfig, {"proxy-url": f"http://127.0.0.1:{proxy.port}"})
        with connect(kubeconfig) as connection:
            assert kinds(connection) == LIST
            interrupted(api, connection)
    for head in proxy.heads:
        assert head.startswith(f"CONNECT 127.0.0.1:{api.port} HTTP/1.".encode())


@pytest.mark.filterwarnings("ignore")  # urllib3's, which says what to install
def test_a_kind_of_proxy_that_is_not_supported(api: ApiServer, tmp_path: Path) -> None:
    kubeconfig = changed(api.write_kubeconfig(tmp_path / "config"), {"proxy-url": "socks5://127.0.0.1:1"})
    with pytest.raises(SourceError, match=r"socks|SOCKS"):
        connect(kubeconfig)


def test_another_context_is_another_server_and_another_user(api: ApiServer, tmp_path: Path) -> None:
    file = api.write_kubeconfig(tmp_path / "config")
    config = yaml.safe_load(file.read_text("utf-8"))
    (mine,) = config["contexts"]
    config["contexts"] = [{"name": "mine", "context": mine["context"]}, {"name": "gone", "context": {}}]
    config["current-context"] = "gone"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    with connect(file, context="mine") as connection:
        assert connection.get_json(SERVICES)
    with pytest.raises(SourceError, match=r"it has no context .other.; .*Choose one by --context: "):
        connect(file, context="other")
