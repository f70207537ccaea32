"""The errors that reach a person. Each message says what failed, on what, and what was left as it was."""

from nodeagent.printable import printable


class NodeagentError(Exception):
    """The root of all errors that nodeagent raises on purpose; its text is meant to be read."""


class ConfigError(NodeagentError):
    """The configuration can't be used. The text holds one `file:line: key: problem` a line."""


class SourceError(NodeagentError):
    """The cluster's objects can't be had: no such directory, API away. The node keeps what it has."""


class ApplyError(NodeagentError):
    """One applier could not read or change its part of the node; the others go on."""


def one_line(text: object) -> str:
    """Return the text on one line, with what could steer a terminal escaped.

    Reasons hold other people's words.
    """
    return printable(" ".join(str(text).split()))


def quoted(text: str, longest: int = 60) -> str:
    """Somebody else's words within quotes and on one line, cut where they are long."""
    return ascii(text) if len(text) <= longest else f"{text[:longest]!a}..."
