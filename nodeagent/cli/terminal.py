"""What the commands print for a person: the one place where text is made safe for a terminal.

Names, annotations, answers of servers: much of what a command shows was written by others. So a command hands
over lines and says what is to be coloured; it never writes an escape sequence or a line's end itself.
"""

import os
from collections.abc import Iterable, Iterator

import click
from msgspec import Struct

from nodeagent.printable import printable


class Styled(Struct, frozen=True):
    """Words in a colour (click's name of it), in bold, or both."""

    text: str
    colour: str | None = None
    bold: bool = False


Line = str | Styled | tuple[str | Styled, ...]
"""One line: plain words, styled ones, or some of each in a row."""


def terminal_text(lines: Iterable[Line]) -> str:
    r"""Return the lines as one text, with ANSI codes for the styles and a line's end behind each.

    Pure. Whatever else in a line is not printable is written as an escape (`\n`, `\x1b`, `\u202e`): no value
    steers the terminal or begins a line of its own.
    """
    return "".join(f"{_rendered(line)}\n" for line in lines)


def block(text: str) -> Iterator[str]:
    """Give the lines of a text that is one by design: a transaction, a diff, an error of several lines.

    Tabs become spaces.
    """
    return (line.expandtabs() for line in text.removesuffix("\n").split("\n")) if text else iter(())


def show(lines: Iterable[Line], *, error: bool = False) -> None:
    """Print the lines to standard output, or to standard error.

    Colours are for a terminal alone, and not where NO_COLOR is set (https://no-color.org: to any value that
    is not empty; click itself does not look).
    """
    show_text(terminal_text(lines), error=error)


def show_text(text: str, *, error: bool = False) -> None:
    """Print what `terminal_text` gave, or a document (`-o json`), as it is."""
    click.echo(text, nl=False, err=error, color=False if os.environ.get("NO_COLOR") else None)


def _rendered(line: Line) -> str:
    parts = line if isinstance(line, tuple) else (line,)
    return "".join(_part(part) for part in parts).rstrip()


def _part(part: str | Styled) -> str:
    if isinstance(part, str):
        return printable(part)
    return click.style(printable(part.text), fg=part.colour, bold=part.bold or None)
