"""Where the API server is, and as whom to ask: by a kubeconfig, or by the ServiceAccount of a pod.

A kubeconfig is read by the official client, here alone, and inside functions: it costs 0.3 s and 25 MB. It
handles merged files, CAs, client certificates, tokens and their refresh, exec plugins and proxies. It ignores
impersonation; see below. For a pod, "Accessing the Kubernetes API from a Pod" is followed; proxies of the
environment are ignored: the API server of the pod's own cluster needs none.
"""

import re
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nodeagent.errors import SourceError, one_line, quoted
from nodeagent.sources.kubernetes.transport import ApiTarget, Headers, Proxy, client_context


class Kubeconfig:
    """The server and the user of a kubeconfig's context; see `Credentials`. An exec plugin is run.

    Args:
        files: path (several, joined by colons, are merged).
        context: the context's name; empty for the current one.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """

    def __init__(self, files: str, context: str = "") -> None:
        from kubernetes import client, config  # noqa: PLC0415 - see the module's head
        from kubernetes.config.kube_config import KubeConfigMerger  # noqa: PLC0415 - the same
        from yaml import YAMLError  # noqa: PLC0415 - comes with it

        # A configuration of its own: the process-wide default stays unchanged.
        found = client.Configuration()
        try:
            config.load_kube_config(files, context or None, found, persist_config=False)
            self._impersonated = _impersonated(KubeConfigMerger(files).config.value, context)
            _check_proxy(found.proxy or "")
            self._client = client.ApiClient(found)
            self.target = _target(found, self._client.rest_client.pool_manager.proxy)
            self._context = _context(found)
        except (config.ConfigException, OSError, ValueError, TypeError, AttributeError, YAMLError) as error:
            why = _in_words(error, files)
            raise SourceError(
                f"{files}: can't be used to reach the API server: {why}; nothing was changed. Pass the "
                "cluster's kubeconfig: --kubeconfig FILE, or set KUBECONFIG (k3s: /etc/rancher/k3s/k3s.yaml)"
            ) from error
        self._failures = config.ConfigException
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings."""
        return self._context

    def headers(self) -> Headers:
        """Return the credentials, refreshed as the client does it; raises OSError or ValueError."""
        sent: dict[str, str] = {}
        try:
            # The client's refresh hook reads token files and runs exec plugins: one thread at a time.
            with self._lock:
                self._client.update_params_for_auth(sent, [], ["BearerToken"], "", "", None)
        except self._failures as error:
            raise ValueError(str(error)) from error
        return [*sent.items(), *self._impersonated]


_ABSENT = re.compile(r"Expected object with name (.*) in .*/(context|cluster|user)s list$")
"""How the client says that a kubeconfig lacks what is named."""


def _check_proxy(url: str) -> None:
    scheme = url.partition("://")[0] if "://" in url else "http"
    if scheme not in {"http", "https"}:
        raise ValueError(f"its proxy is of the kind {scheme}: only http and https are supported")


def _in_words(error: Exception, files: str) -> str:
    """Return what is wrong with a kubeconfig; the client and Python describe it as they meet it."""
    if not any(Path(file).expanduser().exists() for file in files.split(":")):
        return "there is no such file"
    if isinstance(error, OSError):
        return error.strerror or one_line(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not a text in UTF-8"
    if isinstance(error, TypeError | AttributeError):
        return "it does not have the form of a kubeconfig"
    text = one_line(error).removesuffix(".")
    absent = _ABSENT.search(text)
    return f"it has no {absent[2]} {quoted(absent[1])}" if absent else text


def _target(found: Any, proxy: Any) -> ApiTarget:  # noqa: ANN401 - the client's Configuration, urllib3's Url
    url = urlsplit(found.host)
    return ApiTarget(
        url.hostname or "",
        url.port or (80 if url.scheme == "http" else 443),
        url.path.rstrip("/"),
        url.scheme != "http",
        found.tls_server_name or "",
        proxy and Proxy(proxy.host, proxy.port, proxy.scheme == "https", proxy.auth or ""),
    )


def _context(found: Any) -> ssl.SSLContext:  # noqa: ANN401 - the client's Configuration
    context = client_context()
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif found.ssl_ca_cert:
        context.load_verify_locations(cafile=found.ssl_ca_cert)
    else:
        context.load_default_certs()
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    return context


def _impersonated(merged: Any, context: str) -> Headers:  # noqa: ANN401 - a kubeconfig
    """Return the headers of a kubeconfig's `as` fields ("Authenticating: User impersonation").

    Without them, a request would be made, and allowed, as another user than kubectl's.
    """
    named = {
        kind: {entry.value["name"]: entry.value.get(one) or {} for entry in merged[kind]}
        for kind, one in (("contexts", "context"), ("users", "user"))
    }
    chosen = named["contexts"].get(context or merged.get("current-context"), {})
    user = named["users"].get(chosen.get("user"), {})
    extra = user.get("as-user-extra") or {}
    return [
        *((name, str(user[key])) for key, name in _IMPERSONATION if user.get(key)),
        *(("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()),
        *((f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values),
    ]


_IMPERSONATION = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token, the CA and the namespace of a pod's ServiceAccount."""


class ServiceAccount:
    """The API server of the cluster that this pod runs in, and the pod's rights there; see `Credentials`.

    Token and CA are files that are replaced now and then (a token lives for an hour): the token is read for
    each request, the CA for a new connection if its file was replaced.

    Args:
        environment: the pod's environment variables.
        account: the directory with `token` and `ca.crt`.

    Raises:
        SourceError: one of them can't be used; the text names it.
    """

    def __init__(self, environment: Mapping[str, str], account: Path = ACCOUNT) -> None:
        self._token_file = account / "token"
        self._ca_file = account / "ca.crt"
        self._lock = threading.Lock()
        try:
            self.target = _pod_target(environment)
            self.headers()
            self._ca = self._ca_stamp()
            self._context = self._new_context()
        except (OSError, ValueError) as error:
            raise SourceError(
                f"the pod's ServiceAccount: can't be used to reach the API server: {error}; nothing was "
                "changed. Mount it (automountServiceAccountToken), or give a --kubeconfig"
            ) from error

    def context(self) -> ssl.SSLContext:
        """Return TLS settings by the CA as it is now; during its replacement, by the one before."""
        with self._lock:
            with suppress(OSError, ValueError):
                if (stamp := self._ca_stamp()) != self._ca:
                    self._context, self._ca = self._new_context(), stamp
            return self._context

    def headers(self) -> Headers:
        """Return the token as it is now; raises OSError or ValueError."""
        token = self._token_file.read_text(encoding="ascii").strip()
        if not token:
            raise ValueError(f"{self._token_file} is empty")
        return [("Authorization", f"Bearer {token}")]

    def _new_context(self) -> ssl.SSLContext:
        context = client_context()
        context.load_verify_locations(cafile=str(self._ca_file))
        return context

    def _ca_stamp(self) -> tuple[int, int, int]:
        found = self._ca_file.stat()
        return (found.st_ino, found.st_size, found.st_mtime_ns)


def _pod_target(environment: Mapping[str, str]) -> ApiTarget:
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if not (port.isascii() and port.isdecimal()):
        raise ValueError(f"KUBERNETES_SERVICE_PORT={port!r} is not a port")
    return ApiTarget(environment["KUBERNETES_SERVICE_HOST"], int(port))
