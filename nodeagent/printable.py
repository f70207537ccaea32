"""Text from elsewhere on one line that it can't leave: for terminal, log, pages and Events."""

_LONGEST_NAME = 256


def printable(text: str) -> str:
    r"""Return `text` with every letter that is not printable written as an escape: `\n`, `\x1b`, `\u202e`.

    Pure. These are the letters that Unicode calls controls, format characters (bidirectional ones among
    them), separators other than the space, surrogates, and those that are not assigned. So a name or a
    message from elsewhere can neither begin a new line nor move a terminal's cursor.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def cut_to_bytes(text: str, most: int) -> str:
    """Return `text` if its UTF-8 has at most `most` bytes, else as much of it as fits, followed by "...".

    Pure.
    """
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= most:
        return encoded.decode("utf-8")
    return encoded[: most - 3].decode("utf-8", "ignore") + "..."


def shown_name(name: str) -> str:
    """Return a claimed hostname as a line shows it: with escapes, shortened to the length of a hostname.

    Pure. RFC 1035, 2.3.4: 253 characters. Anyone can write a longer one, up to the size of an object.
    """
    return printable(name) if len(name) <= _LONGEST_NAME else f"{printable(name[:_LONGEST_NAME])}..."
