"""HTTP to a registry, and to where it redirects: only https, to few places, with limits of size and time.

A registry is another party's server: its answers must neither lead this process to addresses that only the
node reaches (loopback, link-local, the cluster's own) nor fill its memory or keep it waiting.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from nodeagent.errors import NodeagentError, one_line, quoted
from nodeagent.model.addresses import IPAddress
from nodeagent.plan.address_rules import never_redirected

_PATH = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HTTPS = 443


class ImageReference(Struct, frozen=True):
    """Where an image is: a registry's host and port, a repository, a tag or digest."""

    host: str
    port: int
    repository: str
    reference: str

    @property
    def authority(self) -> str:
        """Host, and the port if it is not HTTPS's own."""
        return self.host if self.port == _HTTPS else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        separator = "@" if ":" in self.reference else ":"
        return f"{self.authority}/{self.repository}{separator}{self.reference}"

    @classmethod
    def parse(cls, text: str) -> "ImageReference":
        """Read `registry.example.com/image:tag`; without a registry, Docker Hub's. Raises ValueError."""
        first, slash, rest = text.partition("/")
        named = bool(slash) and ("." in first or ":" in first or first == "localhost")
        authority, path = (first, rest) if named else ("registry-1.docker.io", text)
        path, _, digest = path.partition("@")
        path, _, tag = path.partition(":")
        if not named or authority == "docker.io":
            authority = "registry-1.docker.io"
            path = path if "/" in path else f"library/{path}"
        reference = digest or tag or "latest"
        host, _, port = authority.partition(":")
        if not host or (port and not port.isdecimal()):
            raise ValueError(f"{text!r}: {authority!r} is not a registry")
        if not _PATH.fullmatch(path):
            raise ValueError(f"{text!r}: {path!r} is not the name of a repository")
        if not (_DIGEST if digest else _TAG).fullmatch(reference):
            raise ValueError(f"{text!r}: {reference!r} is not a tag or digest")
        return cls(host, int(port or _HTTPS), path, reference)


_SECONDS = 10.0
_ALL_SECONDS = 60.0
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Resolve = Callable[[str], tuple[IPAddress, ...]]


class NoAnswerError(NodeagentError):
    """No answer, or one that must not be fetched; the text says from where, and why."""


class RegistryAnswer(Struct, frozen=True):
    """The last answer of a chain of redirects; `data` ends at the caller's limit."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class RegistryHttp:
    """Fetches from one registry, for 60 s in total and 10 s for each step.

    Each hostname is resolved once per request, and connections go to the addresses that were checked.

    Args:
        image: Names the registry. Its own addresses are allowed, whatever they are, at its port and at 443.
        resolve: Returns the addresses of a hostname as this host's own programs see them.
        context: Which authorities are trusted.
    """

    def __init__(self, image: ImageReference, resolve: Resolve, context: ssl.SSLContext) -> None:
        self._image = image
        self._resolve = resolve
        self._context = context
        self._own = frozenset(resolve(image.host))
        self._deadline = time.monotonic() + _ALL_SECONDS

    def get(self, url: str, headers: Mapping[str, str], most: int) -> RegistryAnswer:
        """Get `url`, after up to five redirects; at most `most` bytes of the body.

        Authorization is sent to the host of `url` and to no other.

        Raises:
            NoAnswerError: no answer arrived, or a redirect leads where it must not.
        """
        first = _parsed(url)
        for _ in range(_MOST_REDIRECTS + 1):
            here = _parsed(url)
            sent = {
                name: value
                for name, value in headers.items()
                if name != "Authorization" or (here.hostname, here.port) == (first.hostname, first.port)
            }
            answer = self._get(here, sent, most)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                url = urljoin(url, location)
            except ValueError as error:
                where = f"{quoted(location)}: {one_line(error)}"
                raise NoAnswerError(f"{_shown(url)}: redirects to {where}") from error
        raise NoAnswerError(f"{_shown(url)}: more than {_MOST_REDIRECTS} redirects")

    def _get(self, url: SplitResult, headers: Mapping[str, str], most: int) -> RegistryAnswer:
        host, port = url.hostname or "", url.port or _HTTPS
        authority = f"[{host}]" if ":" in host else host
        named = authority if port == _HTTPS else f"{authority}:{port}"
        sent = {**headers, "Host": named, "Accept-Encoding": "identity"}
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        error: Exception | None = None
        for address in self._allowed(url.geturl(), host, port):
            seconds = min(self._deadline - time.monotonic(), _SECONDS)
            if seconds <= 0:
                error = TimeoutError(f"given up after {_ALL_SECONDS:.0f} s")
                break
            try:
                connected = socket.create_connection((str(address), port), seconds)
            except OSError as failed:
                error = failed  # The next address, as a runtime does.
                continue
            try:
                return self._exchange(connected, host, (path, sent, most), seconds)
            except (HTTPException, OSError, ValueError) as failed:
                error = failed
                break
        raise NoAnswerError(f"{_shown(url.geturl())}: {one_line(error)}") from error

    def _exchange(
        self, connected: socket.socket, host: str, request: tuple[str, Mapping[str, str], int], seconds: float
    ) -> RegistryAnswer:
        """Send one request (path, headers, most bytes of the answer) over TLS, and read its answer.

        A server that trickles is cut off after `seconds`, whatever part of the answer it is at.
        """
        path, headers, most = request
        over = time.monotonic() + seconds
        with self._context.wrap_socket(
            connected, server_hostname=host, do_handshake_on_connect=False
        ) as secured:
            # The plain socket's own: that of TLS would take away what the reading thread is using.
            watch = threading.Timer(seconds, socket.socket.shutdown, (secured, socket.SHUT_RDWR))
            watch.daemon = True
            watch.start()
            try:
                secured.do_handshake()
                http = HTTPConnection(host)
                http.sock = secured
                http.request("GET", path, headers=dict(headers))
                with http.getresponse() as response:
                    found = {name.lower(): value for name, value in response.getheaders()}
                    body = b"" if response.status >= 300 else response.read(most)
            except (HTTPException, OSError) as error:
                if time.monotonic() >= over:
                    raise TimeoutError("the answer took too long") from error
                raise
            finally:
                watch.cancel()
        if time.monotonic() >= over:
            raise TimeoutError("the answer took too long")
        return RegistryAnswer(response.status, found, body)

    def _allowed(self, url: str, host: str, port: int) -> tuple[IPAddress, ...]:
        """Return the addresses to connect to, in the resolver's order: all of them, or none."""
        addresses = self._resolve(host)
        if not addresses:
            raise NoAnswerError(f"{_shown(url)}: {quoted(host)} has no address on this host")
        is_own = self._own.issuperset(addresses) and port in {self._image.port, _HTTPS}
        if (host, port) != (self._image.host, self._image.port) and not is_own:
            inner = [each for each in addresses if not each.is_global or never_redirected(each) is not None]
            if inner:
                raise NoAnswerError(
                    f"{_shown(url)}: not followed: {inner[0]} is neither the registry's own address nor a "
                    "public one"
                )
        return addresses


def _parsed(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        found.port  # noqa: B018 - raises for one that is no number
    except ValueError as error:
        raise NoAnswerError(f"{_shown(url)}: no address: {one_line(error)}") from error
    if found.scheme != "https" or not found.hostname:
        raise NoAnswerError(f"{_shown(url)}: not followed: no https address")
    return found


def _shown(url: str) -> str:
    return one_line(url if len(url) <= 200 else f"{url[:200]}...")
