"""The transport for kubeconfigs: the official client's configuration, credentials and connections.

The only importer of `kubernetes`, inside functions: it costs 0.3 s and 25 MB. It handles clusters' CAs,
client certificates, tokens and their refresh, exec plugins and proxies. Its models are not used.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.errors import ApiRequest, UnauthorizedError, UnreachableError, refusal
from nodeagent.sources.kubernetes.transport import KEEPALIVE, failure_words, unreachable

_Result = TypeVar("_Result")


class OfficialTransport:
    """HTTP as configured by a kubeconfig.

    Args:
        kubeconfig: path (several, joined by colons, are merged); None for the pod's ServiceAccount.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._client = new_client(kubeconfig)
        self._lock = threading.Lock()

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the API server."""
        url = urlsplit(self._client.configuration.host)
        return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)

    @property
    def proxy(self) -> str:
        """Host and port of the proxy; empty if there is none."""
        proxy = self._client.rest_client.pool_manager.proxy
        return f"{proxy.host}:{proxy.port}" if proxy else ""

    def send(  # noqa: PLR0913, PLR0917 - a request's parts
        self,
        request: ApiRequest,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: tuple[float, float],
    ) -> "OfficialResponse":
        """Send a request, and read the head of its answer; see `Transport.send`."""
        sent = self._authorized(request, headers, method)
        url = self._client.configuration.host + target
        send = self._client.rest_client.request
        return OfficialResponse(
            request,
            translated(request, lambda: send(method, url, sent, body, _request_timeout=limits).response),
        )

    def open_websocket(
        self, request: ApiRequest, target: str, protocols: Iterable[str], timeout: float
    ) -> Any:  # noqa: ANN401 - a websocket.WebSocket
        """Open a websocket; see `Connection.open_websocket`."""
        headers = self._authorized(request, {"User-Agent": "nodeagent"}, "GET")
        return open_websocket(self._client, request, target, headers, protocols, timeout)

    def close(self) -> None:
        """Close idle connections; those in use end with their answers."""
        self._client.rest_client.pool_manager.clear()

    def _authorized(self, request: ApiRequest, headers: Mapping[str, str], method: str) -> dict[str, str]:
        """Return the headers with the credentials, refreshed as the client does it.

        Raises:
            UnauthorizedError: a token file or an exec plugin provides none.
        """
        from kubernetes.config import ConfigException  # noqa: PLC0415 - see the module's head

        sent = dict(headers)
        try:
            # The client's refresh hook reads token files and runs exec plugins: one thread at a time.
            with self._lock:
                self._client.update_params_for_auth(sent, [], ["BearerToken"], request.path, method, None)
        except (ConfigException, OSError) as error:
            raise UnauthorizedError(f"{request}: the credentials can't be read: {error}") from error
        return sent


class OfficialResponse:
    """An answer from urllib3; see `Response`."""

    def __init__(self, request: ApiRequest, answer: Any) -> None:  # noqa: ANN401 - urllib3's response
        self.status: int = answer.status
        self.wire_bytes = 0
        self._request = request
        self._answer = answer

    def header(self, name: str) -> str:
        """Return a header's value; empty if there is none."""
        return str(self._answer.headers.get(name, ""))

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yield the body, unpacked."""
        stream = self._answer.stream(most, decode_content=True)
        while (piece := translated(self._request, lambda: next(stream, None))) is not None:
            self.wire_bytes = self._answer.tell()
            yield piece

    def read1(self, most: int) -> bytes:
        """Return what has arrived; empty at the end."""
        piece: bytes = translated(self._request, lambda: self._answer.read1(most, decode_content=False))
        self.wire_bytes += len(piece)
        return piece

    def close(self) -> None:
        """Give up the connection if the body was not read to its end."""
        if not self._answer.closed:
            self._answer.close()

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once."""
        # It may have ended, or its own thread may have closed it, at this moment: that is fine.
        with suppress(ValueError, RuntimeError, OSError):
            self._answer.shutdown()


def new_client(kubeconfig: str | None) -> Any:  # noqa: ANN401 - the client's ApiClient
    """Return a client with a configuration of its own: the process-wide default stays unchanged.

    Args:
        kubeconfig: path (several, joined by colons, are merged); None for the pod's ServiceAccount.

    Returns:
        A `kubernetes.client.ApiClient`.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """
    from kubernetes import client, config  # noqa: PLC0415 - see the module's head
    from urllib3.connection import HTTPConnection  # noqa: PLC0415 - comes with it
    from yaml import YAMLError  # noqa: PLC0415 - comes with it

    found = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=found)
        else:
            config.load_kube_config(config_file=kubeconfig, client_configuration=found, persist_config=False)
    except (config.ConfigException, OSError, ValueError, TypeError, YAMLError) as error:
        where = kubeconfig or "the pod's ServiceAccount"
        advice = "" if kubeconfig is None else ". Pass the cluster's kubeconfig: --kubeconfig FILE"
        why = str(error).removesuffix(".")
        raise SourceError(
            f"{where}: can't be used to reach the API server: {why}; nothing was changed{advice}"
        ) from error
    # The callers decide about retries: they know what to do meanwhile.
    found.retries = False
    found.socket_options = [*HTTPConnection.default_socket_options, *KEEPALIVE]
    return client.ApiClient(found)


def translated(request: ApiRequest, do: Callable[[], _Result]) -> _Result:
    """Make a network call for a request; the transport's failures become UnreachableError."""
    from kubernetes.client import ApiException  # noqa: PLC0415 - see the module's head
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with it

    try:
        return do()
    except (HTTPError, ApiException, OSError) as error:
        raise unreachable(request, _cause(error)) from error


def open_websocket(  # noqa: PLR0913, PLR0917 - a handshake's parts
    client: Any,  # noqa: ANN401 - the client's ApiClient
    request: ApiRequest,
    target: str,
    headers: Mapping[str, str],
    protocols: Iterable[str],
    timeout: float,
) -> Any:  # noqa: ANN401 - a websocket.WebSocket
    """Open a websocket with the client's TLS settings and proxy.

    The client's own function for this has no time limit, and an API server may wait long for a kubelet.

    Args:
        client: a `kubernetes.client.ApiClient`.
        request: the request, for errors.
        target: path and query.
        headers: the credentials' headers.
        protocols: subprotocols to offer, the best first.
        timeout: seconds for each step of the handshake.

    Raises:
        ApiError: one of its kinds.
    """
    import ssl  # noqa: PLC0415 - see the module's head

    import websocket  # noqa: PLC0415 - the same

    found = client.configuration
    verified = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": found.ssl_ca_cert, "check_hostname": True}
    if found.assert_hostname is not None:
        verified["check_hostname"] = found.assert_hostname
    options: dict[str, Any] = {
        **(verified if found.verify_ssl else {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}),
        "certfile": found.cert_file,
        "keyfile": found.key_file,
        "server_hostname": found.tls_server_name,
    }
    # Without this, it would look for a proxy in the environment; the client's configuration has done that.
    through: dict[str, Any] = {"http_no_proxy": ["*"]}
    if found.proxy:
        proxy = urlsplit(found.proxy)
        through = {"proxy_type": "http", "http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
        if proxy.username:
            through["http_proxy_auth"] = (proxy.username, proxy.password)
    opened = websocket.WebSocket(
        sslopt={name: value for name, value in options.items() if value is not None},
        skip_utf8_validation=True,
    )
    try:
        opened.connect(  # type: ignore[no-untyped-call]
            f"ws{found.host.removeprefix('http')}{target}",
            header=[f"{name}: {value}" for name, value in headers.items()],
            subprotocols=list(protocols),
            suppress_origin=True,
            timeout=timeout,
            **through,
        )
    except websocket.WebSocketBadStatusException as error:
        raise refusal(request, error.status_code, error.resp_body or b"", _retry_after(error)) from error
    except (websocket.WebSocketException, OSError) as error:
        raise websocket_failure(request, error) from error
    return opened


def _retry_after(error: Any) -> str:  # noqa: ANN401 - a websocket.WebSocketBadStatusException
    return str((error.resp_headers or {}).get("retry-after", ""))


def websocket_failure(request: ApiRequest, error: Exception) -> UnreachableError:
    """Return the error for a websocket that could not be opened or read."""
    import websocket  # noqa: PLC0415 - see the module's head

    if isinstance(error, websocket.WebSocketTimeoutException | TimeoutError):
        return UnreachableError(f"{request}: no answer in time")
    if isinstance(error, websocket.WebSocketConnectionClosedException | ConnectionError):
        return UnreachableError(f"{request}: the connection was lost: {failure_words(_cause(error))}")
    return UnreachableError(f"{request}: {failure_words(_cause(error))}")


def _cause(error: Exception) -> Exception:
    """Return the standard library's error that caused urllib3's."""
    from urllib3.exceptions import TimeoutError as Timeout  # noqa: PLC0415 - see the module's head

    cause: BaseException = error
    while (deeper := cause.__cause__ or _wrapped(cause)) is not None:
        cause = deeper
    # Only then: a refused connection is one of urllib3's time-outs, too.
    if isinstance(error, Timeout) and not (isinstance(cause, OSError) and cause.strerror):
        return TimeoutError()
    return cause if isinstance(cause, Exception) else error


def _wrapped(error: BaseException) -> BaseException | None:
    """Return the error that urllib3's ProtocolError carries as its second argument."""
    inner = error.args[1] if len(error.args) == 2 else None
    return inner if isinstance(inner, Exception) else None
