"""What is used of the official client: its configuration, its credentials, its transport.

The only importer of `kubernetes`, and inside functions: it costs 0.3 s and 35 MB. It knows clusters' CAs,
client certificates, tokens and their refresh, exec plugins and proxies. Its models are not used.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from http.client import IncompleteRead
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.errors import Asked, UnauthorizedError, UnreachableError, refusal

# As client-go dials: probes after 30 s of silence, every 15 s, given up after 9.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
)

_Result = TypeVar("_Result")


def new_client(kubeconfig: str | None) -> Any:  # noqa: ANN401 - the client's ApiClient
    """Gives a client with a configuration of its own: the process-wide default is left alone.

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
        raise SourceError(f"{where}: gives no way to the API server: {error}; nothing was changed") from error
    # Retries are the callers' decision: they know what to do meanwhile.
    found.retries = False
    found.socket_options = [*HTTPConnection.default_socket_options, *_KEEPALIVE]
    return client.ApiClient(found)


def authorize(client: Any, headers: dict[str, str], asked: Asked, method: str) -> None:  # noqa: ANN401
    """Adds the credentials to a request's headers, refreshed as the client does it; not thread-safe.

    Raises:
        UnauthorizedError: a token file or an exec plugin gives none.
    """
    from kubernetes.config import ConfigException  # noqa: PLC0415 - see the module's head

    try:
        client.update_params_for_auth(headers, [], ["BearerToken"], asked.path, method, None)
    except (ConfigException, OSError) as error:
        raise UnauthorizedError(f"{asked}: the credentials can't be read: {error}") from error


def translated(asked: Asked, do: Callable[[], _Result]) -> _Result:
    """Does something on the network for a request; the transport's failures become UnreachableError."""
    from kubernetes.client import ApiException  # noqa: PLC0415 - see the module's head
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with it

    try:
        return do()
    except (HTTPError, ApiException, OSError) as error:
        raise UnreachableError(
            f"{asked}: {_reason(error)}; is the server up, and its address and CA right?"
        ) from error


def open_websocket(  # noqa: PLR0913, PLR0917 - a handshake's parts
    client: Any,  # noqa: ANN401 - the client's ApiClient
    asked: Asked,
    target: str,
    headers: Mapping[str, str],
    protocols: Iterable[str],
    timeout: float,
) -> Any:  # noqa: ANN401 - a websocket.WebSocket
    """Opens a websocket with the client's TLS settings and proxy.

    The client's own function for this has no time limit, and an API server may wait long for a kubelet.

    Args:
        client: a `kubernetes.client.ApiClient`.
        asked: the request, for errors.
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
    # Without this it would look for a proxy in the environment, which the client's configuration has done.
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
        raise refusal(asked, error.status_code, error.resp_body or b"", error.resp_headers) from error
    except (websocket.WebSocketException, OSError) as error:
        raise websocket_failure(asked, error) from error
    return opened


def websocket_failure(asked: Asked, error: Exception) -> UnreachableError:
    """Gives the error for a websocket that could not be opened or read."""
    import websocket  # noqa: PLC0415 - see the module's head

    if isinstance(error, websocket.WebSocketTimeoutException | TimeoutError):
        return UnreachableError(f"{asked}: no answer in time")
    if isinstance(error, websocket.WebSocketConnectionClosedException | ConnectionError):
        return UnreachableError(f"{asked}: the connection broke: {_reason(error)}")
    return UnreachableError(f"{asked}: {_reason(error)}")


def _reason(error: Exception) -> str:
    """The failure in the fewest words that still tell it."""
    from urllib3.exceptions import TimeoutError as Timeout  # noqa: PLC0415 - see the module's head

    cause: BaseException = error
    while (deeper := cause.__cause__ or _wrapped(cause)) is not None:
        cause = deeper
    if isinstance(cause, IncompleteRead):
        return "the connection broke in the middle of the answer"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    # Only now: a refused connection is one of urllib3's time-outs, too.
    if isinstance(error, Timeout):
        return "no answer in time"
    return " ".join(str(getattr(cause, "reason", None) or cause).split())


def _wrapped(error: BaseException) -> BaseException | None:
    """The error that urllib3's ProtocolError carries as its second argument."""
    inner = error.args[1] if len(error.args) == 2 else None
    return inner if isinstance(inner, Exception) else None
