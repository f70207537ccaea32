"""What a probe asks and what came of it, as values."""

from dataclasses import dataclass
from enum import StrEnum

from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ProxyVersion


@dataclass(frozen=True, slots=True)
class Probe:
    """One connection to make: to `target`, with a PROXY line or without, in TLS or plain, then `HEAD /`.

    `host` is the name asked for (SNI and the Host header); without one the address stands in its place.
    """

    target: Endpoint
    header: ProxyVersion | None = None
    tls: bool = False
    host: str = ""


class Ending(StrEnum):
    """How a probe ended. The first four end before any byte was sent."""

    NOT_ASKED = "not asked: the time for all connections was over"
    UNREACHABLE = "no route to the address"
    REFUSED = "connection refused"
    CONNECT_TIMEOUT = "no answer to the connection request"
    CLOSED_IN_HANDSHAKE = "closed in the TLS handshake"
    RESET_IN_HANDSHAKE = "reset in the TLS handshake"
    SILENT_IN_HANDSHAKE = "no answer in the TLS handshake"
    NOT_TLS = "an answer that is not TLS"
    TLS_ALERT = "a TLS alert"
    EMPTY_REPLY = "empty reply"
    RESET = "reset before any answer"
    SILENT = "connected, but no answer"
    NOT_HTTP = "an answer that is not HTTP"
    STATUS = "an HTTP status"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one probe ended; `status` is 0 where no HTTP answer was read."""

    ending: Ending
    status: int = 0
    detail: str = ""

    def __str__(self) -> str:
        if self.ending is Ending.STATUS:
            return f"HTTP {self.status}"
        return f"{self.ending.value} ({self.detail})" if self.detail else self.ending.value


class Trust(StrEnum):
    """What a verifying client says of a server's certificate."""

    VALID = "valid"
    EXPIRED = "expired"
    FOREIGN_AUTHORITY = "foreign-authority"
    WRONG_NAME = "wrong-name"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CertificateOutcome:
    """The judgement of this machine's own TLS library and its CAs, in its words."""

    trust: Trust
    words: str
