"""What the ending of a connection means: the known signatures, and who leaves them. Pure.

Seen with nginx 1.22, HAProxy 2.6 and, from its documentation, Envoy 1.3x:

    asked                       nginx `proxy_protocol`     HAProxy `accept-proxy`   Envoy's proxy_protocol
    HTTP without the line       empty reply                empty reply or reset     empty reply
    TLS without the line        reset in the handshake     reset or closed          closed in the handshake
    HTTP with it, not wanted    400                        400                      400
    TLS with it, not wanted     400 in plain HTTP          closed in the handshake  closed in the handshake
    HTTP to a TLS port          400                        empty reply              empty reply
"""

from enum import Enum

from nodeagent.sources.probes.connection_tests import Ending, Outcome

_BAD_REQUEST = 400


class Signature(Enum):
    """The classes of endings that conclusions rest on."""

    WORKS = "works"
    """The server understood what it was sent: a status other than 400, or a TLS server's own alert."""
    CUT = "cut"
    """The connection stood, and the server ended it or kept silent: it missed the PROXY line, mostly."""
    REFUSED_LINE = "bad request"
    """400, or plain HTTP on a TLS port: the server took the PROXY line for the request."""
    NO_LISTENER = "nobody listens"
    """Nobody took the connection."""
    UNKNOWN = "unknown"
    """Not asked."""


_BY_ENDING = {
    Ending.NOT_ASKED: Signature.UNKNOWN,
    Ending.UNREACHABLE: Signature.NO_LISTENER,
    Ending.REFUSED: Signature.NO_LISTENER,
    Ending.CONNECT_TIMEOUT: Signature.NO_LISTENER,
    Ending.CLOSED_IN_HANDSHAKE: Signature.CUT,
    Ending.RESET_IN_HANDSHAKE: Signature.CUT,
    Ending.SILENT_IN_HANDSHAKE: Signature.CUT,
    Ending.NOT_TLS: Signature.REFUSED_LINE,
    Ending.TLS_ALERT: Signature.WORKS,
    Ending.EMPTY_REPLY: Signature.CUT,
    Ending.RESET: Signature.CUT,
    Ending.SILENT: Signature.CUT,
    # A server that speaks first (SSH, SMTP) or another protocol answers, and that is what counts.
    Ending.NOT_HTTP: Signature.WORKS,
}


def signature(outcome: Outcome | None) -> Signature:
    """The class of an outcome; None was not asked."""
    if outcome is None:
        return Signature.UNKNOWN
    if outcome.ending is Ending.STATUS:
        return Signature.REFUSED_LINE if outcome.status == _BAD_REQUEST else Signature.WORKS
    return _BY_ENDING[outcome.ending]


def works(outcome: Outcome | None) -> bool:
    """Whether the server understood what it was sent."""
    return signature(outcome) is Signature.WORKS
