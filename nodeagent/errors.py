"""The errors that reach a person. Each message says what failed, on which object, what was left unchanged."""

from nodeagent.printable import printable


class NodeagentError(Exception):
    """The base class of all errors that nodeagent raises on purpose; its text is meant to be read."""


class ConfigError(NodeagentError):
    """The configuration can't be used. The text has one `file:line: key: problem` per line."""


class SourceError(NodeagentError):
    """The cluster's objects are not available: no such directory, no API. The node keeps what it has."""


class ApplyError(NodeagentError):
    """One component could not read or change its part of the node; the others continue."""


def one_line(text: object) -> str:
    """Return the text on one line, with characters that could control a terminal escaped.

    Reasons contain text from others.
    """
    return printable(" ".join(str(text).split()))


def quoted(text: str, longest: int = 60) -> str:
    """Return text from others within quotes and on one line, shortened if it is long."""
    return ascii(text) if len(text) <= longest else f"{text[:longest]!a}..."
