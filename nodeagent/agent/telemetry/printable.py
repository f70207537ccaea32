"""Text from elsewhere on one line that it can't break out of."""


def printable(text: str) -> str:
    r"""Pure: `text` with every letter that is not printable written as an escape: `\n`, `\x1b`, `\u202e`.

    So a name or a message from elsewhere can neither begin a line of its own nor move a terminal's cursor.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
