"""The errors that reach a person, and text from others made safe for terminal, log, pages and Events.

An error says what failed, on which object, and what was left unchanged.
"""

_LONGEST_NAME, _LONGEST_QUOTE = 256, 60


class NodeagentError(Exception):
    """The base class of all errors that nodeagent raises on purpose; its text is meant to be read."""


class ConfigError(NodeagentError):
    """The configuration can't be used. The text has one `file:line: key: problem` per line."""


class SourceError(NodeagentError):
    """The cluster's objects are not available: no such directory, no API. The node keeps what it has."""


class ApplyError(NodeagentError):
    """One component could not read or change its part of the node; the others continue."""


def printable(text: str) -> str:
    r"""Return `text` with escapes for what is not printable: `\n`, `\x1b`, `\u202e`. Pure.

    So no name or message can begin a new line, or move a terminal's cursor.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def one_line(text: object) -> str:
    """Return the text on one line, printable."""
    return printable(" ".join(str(text).split()))


def shortened(text: str, longest: int) -> str:
    """Return the text; if it is longer, so much of it, and "..."."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def quoted(text: str) -> str:
    """Return the text within quotes and on one line, shortened if it is long."""
    return ascii(text) if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]!a}..."


def cut_to_bytes(text: str, most: int) -> str:
    """Return `text` if its UTF-8 has at most `most` bytes, else as much of it as fits, and "...". Pure."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= most:
        return encoded.decode("utf-8")
    return encoded[: most - 3].decode("utf-8", "ignore") + "..."


def shown_name(name: str) -> str:
    """Return a claimed hostname, printable, and shortened if it is longer than any (RFC 1035, 2.3.4)."""
    return printable(shortened(name, _LONGEST_NAME))
