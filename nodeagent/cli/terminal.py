"""What the commands print for a person: the one place where text is made safe for a terminal and laid out.

Names, annotations, answers of servers: others wrote much of what a command shows. So a command passes lines
and says what to color; it never writes an escape sequence or a line end itself.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence

import click
from msgspec import Struct, structs

from nodeagent.errors import one_line, printable

_WIDEST = 100
_WORD = re.compile(r"\s*\S+")
_ARGUMENT = re.compile(r"""\s*(?:'[^']*'|"[^"]*"|\S)+""")
_COLUMN = re.compile(r"(?:^| ) +(?:[-+!~$] )?")


class Styled(Struct, frozen=True):
    """Words in a color (by click's name), in bold, or both; `whole`: their line is never wrapped."""

    text: str
    colour: str | None = None
    bold: bool = False
    whole: bool = False


Line = str | Styled | tuple[str | Styled, ...]
"""One line: plain words, styled ones, or some of each in a row."""


def terminal_text(lines: Iterable[Line], width: int = 0) -> str:
    r"""Return the lines as one text, with ANSI codes for the styles and a line end after each. Pure.

    What else is not printable becomes an escape: no value controls the terminal or begins a line of its own.
    A line of more than `width` characters (0: no limit) continues on further rows, below the column in which
    its text began; a command (`$ `) so that a shell can still read it.
    """
    return "".join(f"{row}\n" for line in lines for row in _rows(line, width))


def block(text: str) -> Iterator[str]:
    """Return the lines of a text that has several by design (a diff, an error); tabs become spaces."""
    return (line.expandtabs() for line in text.removesuffix("\n").split("\n")) if text else iter(())


def section(title: str | Styled, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the title, the lines below it, indented, and an empty one; nothing if there are no lines."""
    body: list[Line] = [(Styled("  "), *_parts(line)) for line in lines]
    if body:
        yield title if isinstance(title, Styled) else Styled(title, bold=True)
        yield from body
        yield ""


def table(rows: Iterable[Sequence[str | Styled]], first: int = 0) -> list[Line]:
    """Return the rows in columns, the first of at least `first` characters; each cell is on one line."""
    grid = [[Styled(one_line(cell.text), cell.colour, cell.bold) for cell in _parts(row)] for row in rows]
    widths = [max(len(cell.text) for cell in column) + 2 for column in zip(*grid, strict=True)]
    columns = [max(first + 2, widths[0]), *widths[1:-1], 0] if widths else []
    return [
        tuple(
            Styled(f"{cell.text:{width}}", cell.colour, cell.bold)
            for cell, width in zip(row, columns, strict=True)
        )
        for row in grid
    ]


def show(lines: Iterable[Line], *, wrap: bool = True) -> None:
    """Print the lines, if `wrap` as wide as COLUMNS says, or else as the terminal, up to 100 characters.

    A pipe is no reason for longer lines: `kubectl exec` without a terminal is one, in front of a person.
    """
    columns = shutil.get_terminal_size((_WIDEST, 0)).columns
    width = columns if os.environ.get("COLUMNS") else min(columns, _WIDEST)
    show_text(terminal_text(lines, width if wrap else 0))


def show_error(text: str) -> None:
    """Print an error, each of its lines on one line."""
    show_text(terminal_text(block(text)), error=True)


def show_text(text: str, *, error: bool = False) -> None:
    """Print a result of `terminal_text`, or a document (`-o json`), as it is.

    Colors are for a terminal, or wherever FORCE_COLOR is set (https://force-color.org), and never if NO_COLOR
    is (https://no-color.org): to any value that is not empty; click itself checks neither.
    """
    color = False if os.environ.get("NO_COLOR") else bool(os.environ.get("FORCE_COLOR")) or None
    click.echo(text, nl=False, err=error, color=color)


def _parts(line: Line | Sequence[str | Styled]) -> list[Styled]:
    parts: Sequence[str | Styled] = [line] if isinstance(line, str | Styled) else line
    return [Styled(part) if isinstance(part, str) else part for part in parts]


def _rows(line: Line, width: int) -> Iterator[str]:
    parts = [structs.replace(part, text=printable(part.text)) for part in _parts(line)]
    if any(part.whole for part in parts):
        width = 0
    text = "".join(part.text for part in parts).rstrip()
    longest = max(map(len, text.split()), default=0)  # and may have no room in a column so far to the right
    columns = [
        match.end() for match in _COLUMN.finditer(text) if match.end() < min(width / 2, width - longest)
    ]
    indent = columns[-1] if columns else 2
    command = text.lstrip().startswith("$ ")
    wrapped = len(text) > width > 0
    for start, end in _places(text, width, indent, command=command) if wrapped else [(0, len(text))]:
        row, offset = " " * indent if start else "", 0
        for part in parts:
            row += _styled(part, max(start - offset, 0), max(end - offset, 0))
            offset += len(part.text)
        yield f"{row} \\" if command and end < len(text) else row


def _places(text: str, width: int, indent: int, *, command: bool) -> Iterator[tuple[int, int]]:
    start = end = 0
    room = width - 2 * command
    for word in (_ARGUMENT if command else _WORD).finditer(text):
        if word.end() - start > room and end:
            yield start, end
            start = word.end() - len(word[0].lstrip())
            room = width - indent - 2 * command
        end = word.end()
    yield start, end


def _styled(part: Styled, start: int, end: int) -> str:
    text = part.text[start:end]
    if not text or not (part.colour or part.bold):
        return text
    return click.style(text, fg=part.colour, bold=part.bold or None)
