"""Where the API server is, and as whom to ask: in a pod by its ServiceAccount, elsewhere by a kubeconfig.

The official client reads both: merged files, CAs, client certificates, tokens and their refresh, exec
plugins, proxies. It ignores impersonation, which is added here.
"""

import logging
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigMerger
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3 import HTTPHeaderDict, HTTPSConnectionPool, disable_warnings
from urllib3.connection import HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs
from yaml import YAMLError

from nodeagent.errors import SourceError, one_line

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token, the CA and the namespace of a pod's ServiceAccount."""
_UNUSABLE = (config.ConfigException, ImportError, OSError, ValueError, TypeError, AttributeError, YAMLError)
_SILENT_MILLISECONDS = 45_000
"""After which a connection whose other end confirms nothing, neither data nor keepalives, counts as lost."""
_MOST_IDLE = 4
"""Connections that are kept for the next request."""


class _TlsConnection(HTTPSConnection):
    """Reads CA and certificate again for each connection, and accepts the CAs that client-go accepts.

    urllib3's own settings reject CAs without an authority key identifier since Python 3.13.
    """

    def connect(self) -> None:
        self.ssl_context = create_urllib3_context(
            cert_reqs=resolve_cert_reqs(self.cert_reqs), verify_flags=ssl.VERIFY_X509_PARTIAL_CHAIN
        )
        if not self.ca_certs:
            self.ssl_context.load_default_certs()
        super().connect()


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def new_client(configuration: Configuration, headers: Mapping[str, str]) -> ApiClient:
    """Return a client with connections of its own, which sends these headers."""
    made = ApiClient(configuration)
    made.default_headers = headers
    pools = made.rest_client.pool_manager
    pools.pool_classes_by_scheme = {**pools.pool_classes_by_scheme, "https": _TlsPool}
    return made


def service_account(environment: Mapping[str, str], account: Path = ACCOUNT) -> ApiClient:
    """Return the access of a pod; its environment's proxies are ignored: its own cluster needs none.

    The client reads the token again each minute, and the CA for each connection.
    """
    found = _configuration()
    try:
        files = str(account / "token"), str(account / "ca.crt")
        InClusterConfigLoader(*files, environ=environment).load_and_set(found)
        _ = urlsplit(found.host).port
    except _UNUSABLE as error:
        raise SourceError(
            f"the pod's ServiceAccount: can't be used to reach the API server: {one_line(error)}; nothing "
            f"was changed. Mount it at {account} (automountServiceAccountToken), or give a --kubeconfig"
        ) from error
    found.proxy = None
    return new_client(found, HTTPHeaderDict())


def kubeconfig(files: str, context: str = "") -> ApiClient:
    """Return the access by a kubeconfig's context; an exec plugin is run.

    Args:
        files: path (several, joined by colons, are merged).
        context: the context's name; empty for the current one.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """
    found = _configuration()
    try:
        config.load_kube_config(files, context or None, found, persist_config=False)
        impersonation = _impersonation(KubeConfigMerger(files).config, context)
        _ = urlsplit(found.host).port
        return new_client(found, impersonation)
    except _UNUSABLE as error:
        raise SourceError(
            f"{files}: can't be used to reach the API server: {_in_words(error, files)}; nothing was "
            "changed. Pass the cluster's kubeconfig: --kubeconfig FILE, or set KUBECONFIG (k3s: "
            "/etc/rancher/k3s/k3s.yaml)"
        ) from error


def _configuration() -> Configuration:
    # A warning for each connection that is not verified, or not kept, says nothing new.
    disable_warnings()
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    found = Configuration(retries=False, connection_pool_maxsize=_MOST_IDLE)
    found.socket_options = tcp_keepalive_socket_options()
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        found.socket_options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MILLISECONDS))
    return found


def _in_words(error: Exception, files: str) -> str:
    """Return what is wrong with a kubeconfig; the client and Python describe it as they meet it."""
    if not any(Path(file).expanduser().exists() for file in files.split(":")):
        return "there is no such file"
    if isinstance(error, OSError):
        return error.strerror or one_line(error)
    if isinstance(error, TypeError | AttributeError):
        return "it does not have the form of a kubeconfig"
    text = one_line(error).removesuffix(".")
    if not text.endswith("/contexts list"):
        return text
    names = ", ".join(one_line(each["name"]) for each in KubeConfigMerger(files).config["contexts"])
    return f"{text}, but {names or 'none at all'}"


def _impersonation(merged: ConfigNode, context: str) -> HTTPHeaderDict:
    """Return the headers of a kubeconfig's `as` fields ("Authenticating: User impersonation").

    Without them, a request would be made, and allowed, as another user than kubectl's.
    """
    chosen = merged["contexts"].get_with_name(context or merged["current-context"])["context"]
    found = merged["users"].get_with_name(chosen.safe_get("user"), safe=True)
    user = (found.value["user"] if found else None) or {}
    extra = user.get("as-user-extra") or {}
    headers = [
        ("Impersonate-User", user.get("as")),
        ("Impersonate-Uid", user.get("as-uid")),
        *(("Impersonate-Group", group) for group in user.get("as-groups") or ()),
        *((f"Impersonate-Extra-{key}", value) for key, values in extra.items() for value in values),
    ]
    return HTTPHeaderDict([(name, str(value)) for name, value in headers if value])
