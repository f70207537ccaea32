"""A client without manners of its own: single requests and watch lines as they are on the wire."""

import http.client
import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from .resources import Object

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A server at 127.0.0.1 as one of its users sees it: port, bearer token (empty for none), TLS or None."""

    port: int
    token: str = ""
    context: ssl.SSLContext | None = None


def opened(api: Peer) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """Return a connection, and the credentials' header."""
    token = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    if api.context is None:
        return http.client.HTTPConnection("127.0.0.1", api.port, timeout=_TIMEOUT), token
    secure = http.client.HTTPSConnection("127.0.0.1", api.port, timeout=_TIMEOUT, context=api.context)
    return secure, token


def exchange(
    api: Peer,
    method: str,
    target: str,
    body: Object | str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], bytes]:
    """Send one request on a connection of its own; return status, headers and the answer's bytes.

    The body is sent as JSON, a text as it is.
    """
    connection, token = opened(api)
    with closing(connection):
        kind = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request(method, target, data, {**kind, **token, **(headers or {})})
        with connection.getresponse() as response:
            return response.status, dict(response.getheaders()), response.read()


def request(
    api: Peer,
    method: str,
    target: str,
    body: Object | str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Object]:
    """Do as `exchange`, but return the HTTP status and the answer's JSON."""
    status, _, data = exchange(api, method, target, body, headers)
    obj: Object = json.loads(data)
    return status, obj


class WatchLines:
    """One watch, read line by line; the target needs no `watch=1`."""

    def __init__(self, api: Peer, target: str) -> None:
        self._connection, token = opened(api)
        self._connection.request("GET", f"{target}{'&' if '?' in target else '?'}watch=1", headers=token)
        self.response = self._connection.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def next(self) -> Object:
        """Return the next event; EOFError at the stream's clean end."""
        line = self.response.readline()
        if not line:
            raise EOFError("the stream has ended")
        event: Object = json.loads(line)
        return event

    def seen(self, count: int) -> list[tuple[str, str]]:
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]
