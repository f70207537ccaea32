"""What the commands print for a person: the one place where text is made safe for a terminal.

Names, annotations, answers of servers: others wrote much of what a command shows. So a command passes lines
and says what to color; it never writes an escape sequence or a line end itself.
"""

import os
from collections.abc import Iterable, Iterator

import click
from msgspec import Struct

from nodeagent.printable import printable


class Styled(Struct, frozen=True):
    """Words in a color (by click's name), in bold, or both."""

    text: str
    colour: str | None = None
    bold: bool = False


Line = str | Styled | tuple[str | Styled, ...]
"""One line: plain words, styled ones, or some of each in a row."""


def terminal_text(lines: Iterable[Line]) -> str:
    r"""Return the lines as one text, with ANSI codes for the styles and a line end after each.

    Pure. Any other character in a line that is not printable is written as an escape (`\n`, `\x1b`,
    `\u202e`): no value controls the terminal or begins a line of its own.
    """
    return "".join(f"{_rendered(line)}\n" for line in lines)


def block(text: str) -> Iterator[str]:
    """Return the lines of a text that has several by design: a transaction, a diff, a multi-line error.

    Tabs become spaces.
    """
    return (line.expandtabs() for line in text.removesuffix("\n").split("\n")) if text else iter(())


def show(lines: Iterable[Line], *, error: bool = False) -> None:
    """Print the lines to standard output, or to standard error.

    Colors are only for a terminal, and not if NO_COLOR is set (https://no-color.org: to any value that is not
    empty; click itself does not check it).
    """
    show_text(terminal_text(lines), error=error)


def show_text(text: str, *, error: bool = False) -> None:
    """Print a result of `terminal_text`, or a document (`-o json`), as it is."""
    click.echo(text, nl=False, err=error, color=False if os.environ.get("NO_COLOR") else None)


def _rendered(line: Line) -> str:
    parts = line if isinstance(line, tuple) else (line,)
    return "".join(_part(part) for part in parts).rstrip()


def _part(part: str | Styled) -> str:
    if isinstance(part, str):
        return printable(part)
    return click.style(printable(part.text), fg=part.colour, bold=part.bold or None)
