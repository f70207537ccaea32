"""What the commands print for a person: the one place where text is made safe for a terminal and laid out.

Names, annotations, answers of servers: others wrote much of what a command shows. So a command passes lines
and says what to color; it never writes an escape sequence or a line end itself.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import click
from msgspec import Struct

from nodeagent.errors import one_line
from nodeagent.printable import printable

_LEAST_WIDTH = 40
# What a wrapped line hangs under: its last column that begins in the first half, without the dash of a list.
_HANGING = re.compile(r"(?:.*\s{2,})?(?:\s*- )?")


class Styled(Struct, frozen=True):
    """Words in a color (by click's name), in bold, or both."""

    text: str
    colour: str | None = None
    bold: bool = False


Line = str | Styled | tuple[str | Styled, ...]
"""One line: plain words, styled ones, or some of each in a row."""


def terminal_text(lines: Iterable[Line], width: int = 0) -> str:
    r"""Return the lines as one text, with ANSI codes for the styles and a line end after each.

    Pure. Any other character in a line that is not printable is written as an escape (`\n`, `\x1b`,
    `\u202e`): no value controls the terminal or begins a line of its own. If there is a `width`, longer lines
    continue below with their own indentation; a command to paste (`$ `) is never broken.
    """
    rendered = chain.from_iterable(_wrapped(_parts(line), width) for line in lines)
    return "".join(f"{''.join(map(_styled, parts)).rstrip()}\n" for parts in rendered)


def block(text: str) -> Iterator[str]:
    """Return the lines of a text that has several by design (a diff, an error); tabs become spaces."""
    return (line.expandtabs() for line in text.removesuffix("\n").split("\n")) if text else iter(())


def section(title: str | Styled, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the title, the lines below it, indented, and an empty one; nothing if there are no lines."""
    found: list[Line] = [(Styled("  "), *_parts(line)) for line in lines]
    if found:
        yield title if isinstance(title, Styled) else Styled(title, bold=True)
        yield from found
        yield ""


def table(rows: Iterable[Sequence[str | Styled]], first: int = 0) -> list[Line]:
    """Return the rows in columns, the first of at least `first` characters; each cell is on one line."""
    found = [[Styled(one_line(cell.text), cell.colour, cell.bold) for cell in _parts(row)] for row in rows]
    widths = [max(len(cell.text) for cell in column) + 2 for column in zip(*found, strict=True)]
    columns = [max(first + 2, widths[0]), *widths[1:-1], 0] if widths else []
    return [
        tuple(
            Styled(f"{cell.text:{width}}", cell.colour, cell.bold)
            for cell, width in zip(row, columns, strict=True)
        )
        for row in found
    ]


def show(lines: Iterable[Line], *, error: bool = False) -> None:
    """Print the lines to standard output, or to standard error; wrapped on a terminal.

    Colors are for a terminal, or wherever FORCE_COLOR is set (https://force-color.org), and never if NO_COLOR
    is (https://no-color.org): to any value that is not empty; click itself checks neither.
    """
    on_terminal = (sys.stderr if error else sys.stdout).isatty()
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH) if on_terminal else 0
    show_text(terminal_text(lines, width), error=error)


def show_text(text: str, *, error: bool = False) -> None:
    """Print a result of `terminal_text`, or a document (`-o json`), as it is."""
    color = False if os.environ.get("NO_COLOR") else bool(os.environ.get("FORCE_COLOR")) or None
    click.echo(text, nl=False, err=error, color=color)


def _parts(line: Line | Sequence[str | Styled]) -> list[Styled]:
    parts: Sequence[str | Styled] = [line] if isinstance(line, str | Styled) else line
    return [Styled(part) if isinstance(part, str) else part for part in parts]


def _wrapped(parts: list[Styled], width: int) -> Iterator[list[Styled]]:
    """Yield the line in pieces of at most `width` characters, if it can be broken at spaces."""
    parts = [Styled(printable(part.text), part.colour, part.bold) for part in parts]
    text = "".join(part.text for part in parts).rstrip()
    if not width or len(text) <= width or text.lstrip().startswith("$ "):
        yield parts
        return
    hanging = _HANGING.match(text[: width // 2])
    indent = Styled(" " * len(hanging[0] if hanging else ""))
    start, room, before = 0, width, len(indent.text)
    while len(text) - start > room:
        end = text.rfind(" ", start + before, start + room + 1)
        if end < 0:
            end = text.find(" ", start + room)
        if end < 0:
            break
        yield [*([indent] if start else []), *_slice(parts, start, end)]
        start, room, before = end + 1, width - len(indent.text), 1
    yield [*([indent] if start else []), *_slice(parts, start, len(text))]


def _slice(parts: list[Styled], start: int, end: int) -> Iterator[Styled]:
    for part in parts:
        if start < len(part.text) and end > 0:
            yield Styled(part.text[max(start, 0) : end], part.colour, part.bold)
        start, end = start - len(part.text), end - len(part.text)


def _styled(part: Styled) -> str:
    if not (part.colour or part.bold):
        return part.text
    return click.style(part.text, fg=part.colour, bold=part.bold or None)
