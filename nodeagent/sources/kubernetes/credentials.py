"""Where the API server is, and as whom to ask: in a pod by its ServiceAccount, elsewhere by a kubeconfig.

The official client reads both: merged files, CAs, client certificates, tokens and their refresh, exec
plugins, proxies. It ignores impersonation, which is added here.
"""

import logging
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3 import HTTPHeaderDict, disable_warnings
from urllib3.util.ssl_ import create_urllib3_context
from yaml import YAMLError

from nodeagent.errors import SourceError, one_line
from nodeagent.yaml_loader import yaml_problem

_LOG = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token, the CA and the namespace of a pod's ServiceAccount."""
_UNUSABLE = (config.ConfigException, ImportError, OSError, ValueError, TypeError, AttributeError, YAMLError)
_WORDS = (
    (UnicodeDecodeError, "not a text in UTF-8"),
    (TypeError | AttributeError, "it does not have the form of a kubeconfig"),
    (ImportError, "its proxy-url is for SOCKS, which is not supported"),
    (ssl.SSLError, "its CA, client certificate or key is not PEM"),
)
"""What is said of an error whose own words only a program knows."""
_SERVER = re.compile(r"https?://([^/@\s]*@)?(\[[^]/\s]+\]|[^]/:@[\s]+)(:\d+)?(/\S*)?$")
_SILENT_MILLISECONDS = 45_000
"""After which a connection whose other end confirms nothing, neither data nor keepalives, counts as lost."""
_LARGEST_FILES = 4 << 20
"""Bytes of a kubeconfig, of which the client reads 400 kB a second."""
_PATIENCE_SECONDS = 5.0
"""After which the log names the plugin that has not answered: nothing else says that it may want a login."""
_MOST_IDLE = 4
"""Connections that are kept for the next request."""


def service_account(environment: Mapping[str, str], account: Path = ACCOUNT) -> ApiClient:
    """Return the access of a pod; its environment's proxies are ignored: its own cluster needs none."""
    advice = f"Mount it at {account} (automountServiceAccountToken), or give a --kubeconfig"
    with _configuration("the pod's ServiceAccount", advice) as configuration:
        files = str(account / "token"), str(account / "ca.crt")
        InClusterConfigLoader(*files, environ=environment).load_and_set(configuration)
        configuration.proxy = None
        return new_client(configuration, HTTPHeaderDict())


def kubeconfig(files: str, context: str = "") -> ApiClient:
    """Return the access by a context, empty for the current one; an exec plugin is run.

    `files` are joined by colons, and merged. Raises SourceError, which names them.
    """
    named = files.strip(":") or "the kubeconfig"
    with _configuration(named, "Correct it, or pass another: --kubeconfig FILE") as configuration:
        paths = [path for file in files.split(":") if file and (path := Path(file).expanduser()).exists()]
        if not paths:
            advice = "Pass the cluster's kubeconfig: --kubeconfig FILE, or set KUBECONFIG"
            raise _UnusableError("there is no such file", f"{advice} (k3s: /etc/rancher/k3s/k3s.yaml)")
        if sum(path.stat().st_size for path in paths) > _LARGEST_FILES:
            advice = "Pass a smaller one: --kubeconfig FILE"
            raise _UnusableError(f"it has more than {_LARGEST_FILES} bytes", advice)
        merged = KubeConfigMerger(files).config
        user = _user(merged, context)
        with _plugin_errors(user):
            KubeConfigLoader(merged, context or None, config_base_path=None).load_and_set(configuration)
        return new_client(configuration, _impersonation(user))


class _UnusableError(ValueError):
    """What is wrong with a kubeconfig, and what to do about just that."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(why)
        self.advice = advice


def _user(merged: ConfigNode, context: str) -> Mapping[str, Any]:
    """Return the context's user, empty if it has none. Raises an error that says what to choose from."""
    names = [str(entry["name"]) for entry in merged.safe_get("contexts") or () if "name" in entry]
    name = context or merged.safe_get("current-context")
    if name not in names:
        why = f"it has no context {name!r}" if name else "it has no current-context"
        raise _UnusableError(why, f"Choose one by --context: {', '.join(names) or 'it has none'}")
    named = merged["contexts"].get_with_name(name)["context"].safe_get("user")
    user = merged["users"].get_with_name(named, safe=True) if "users" in merged else None
    return (user.value["user"] if user else None) or {}


@contextmanager
def _plugin_errors(user: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error for a plugin that is missing or fails: the client only logs that, and asks without."""
    command = (user.get("exec") or {}).get("command")
    if command and not shutil.which(command):
        raise _UnusableError(f"its user needs {command}, which can't be found or run", "Install it")
    messages: list[str] = []

    def noted(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False

    words = "Waiting for the kubeconfig's plugin %s, which has not answered for %d s (Ctrl-C: give up)"
    waiting = threading.Timer(_PATIENCE_SECONDS, _LOG.warning, (words, command, _PATIENCE_SECONDS))
    waiting.daemon = True
    logging.getLogger().addFilter(noted)
    if command:
        waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
        logging.getLogger().removeFilter(noted)
    if command and messages:
        raise _UnusableError(
            f"its user's plugin {command} failed: {_plain(messages[0])}",
            "Run it to see why, log in, or correct the user's exec entry",
        )


@contextmanager
def _configuration(source: str, advice: str) -> Iterator[Configuration]:
    """Provide one to fill in and to use; whatever can't be used becomes a SourceError."""
    # A warning for each connection that is not verified, or not kept, says nothing new.
    disable_warnings()
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    options = tcp_keepalive_socket_options()
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MILLISECONDS))
    try:
        yield Configuration(retries=False, connection_pool_maxsize=_MOST_IDLE, socket_options=options)
    except _UNUSABLE as error:
        words = _plain(one_line(error).removesuffix("."))
        if isinstance(error, OSError) and error.strerror:
            unnamed = error.filename and str(error.filename) not in source
            words = f"{error.filename}: {error.strerror}" if unnamed else error.strerror
        if isinstance(error, YAMLError):
            words = f"line {yaml_problem(error, '')[0]} is not YAML"
        words = next((known for kind, known in _WORDS if isinstance(error, kind)), words)
        advice = error.advice if isinstance(error, _UnusableError) else advice
        if isinstance(error, PermissionError):
            advice = "Run as a user who can read it (sudo)"
        raise SourceError(
            f"{source}: can't be used to reach the API server: {words}; nothing was changed. {advice}"
        ) from error


def _plain(text: str) -> str:
    """Return the client's words without what it quotes: a whole user, with its secrets."""
    if "object has no attribute 'strip'" in text:  # a plugin's own words, which a terminal showed
        return "it said why"
    text = re.sub(r"^(Invalid kube-config( file)?\.|exec:) ", "", text)
    text = re.sub(r"^failed to decode process output: .*", "it printed no JSON", text)
    text = text.replace("malformed request. missing key", "its exec entry has no")
    lacking = r"^Expected (?:key|object with name) (\S+) in (?:.*\}[^/]*/|.*/)"
    return re.sub(f"{lacking}(.*)$", r"its \2 has no '\1'", text, flags=re.DOTALL)


def new_client(configuration: Configuration, headers: HTTPHeaderDict) -> ApiClient:
    """Return a client with connections of its own, which trusts the CAs that client-go trusts.

    urllib3's own settings reject CAs without an authority key identifier since Python 3.13.
    """
    _ = urlsplit(configuration.host).port  # ValueError if it is too large
    if not _SERVER.match(configuration.host):
        raise ValueError("its server is not a URL such as https://HOST:6443")
    required = ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    tls = create_urllib3_context(cert_reqs=required, verify_flags=ssl.VERIFY_X509_PARTIAL_CHAIN)
    if configuration.ssl_ca_cert:
        tls.load_verify_locations(configuration.ssl_ca_cert)
    elif configuration.host.startswith("https:") or configuration.proxy:
        tls.load_default_certs()
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    configuration.proxy_ssl_context = tls
    client = ApiClient(configuration)
    client.default_headers = headers
    # Else urllib3 would load the files again into what other connections use at the same time.
    own = {"ssl_context": tls, "ca_certs": None, "cert_file": None, "key_file": None}
    client.rest_client.pool_manager.connection_pool_kw.update(own)
    return client


def _impersonation(user: Mapping[str, Any]) -> HTTPHeaderDict:
    """Return the headers of a kubeconfig's `as` fields ("Authenticating: User impersonation").

    Without them, a request would be made, and allowed, as another user than kubectl's.
    """
    named = [("User", user.get("as")), ("Uid", user.get("as-uid"))]
    named += [("Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        named += [(f"Extra-{key}", value) for value in values]
    return HTTPHeaderDict([(f"Impersonate-{name}", str(value)) for name, value in named if value])
