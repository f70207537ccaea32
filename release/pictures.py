"""Makes docs/pictures: diagrams from their text, screens from a real run in the testbed (as root).

python -m release.pictures docs/pictures
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

_COLUMNS = 132
_DEMO = [sys.executable, "-m", "tests.testbed.demo"]
_DOCTOR = [sys.executable, "-m", "release.doctor_screen"]


def draw(source: Path) -> None:
    """Draw a diagram next to its text, by graphviz."""
    subprocess.run(["dot", "-Tsvg", str(source), "-o", str(source.with_suffix(".svg"))], check=True)


def run_in_terminal(command: list[str]) -> str:
    """Run a command on a terminal of its own; returns what it wrote, with its colors.

    Raises:
        RuntimeError: The command failed.
    """
    written = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        written.extend(data)
        return data

    status = pty.spawn(command, read)
    text = written.decode(errors="replace").replace("\r\n", "\n")
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{command} failed:\n{text}")
    return text


def screen(text: str, title: str, target: Path) -> None:
    """Write a terminal's text with its colors as an SVG."""
    console = Console(
        record=True, width=_COLUMNS, file=StringIO(), color_system="standard", force_terminal=True
    )
    console.print(Text.from_ansi(text.rstrip()))
    drawn = console.export_svg(title=title, unique_id=target.stem)
    # The font is this machine's: a picture asks no other server for it.
    target.write_text(re.sub(r',\s*url\([^)]*\) format\("\w+"\)', "", drawn), encoding="utf-8")


def shortened(text: str, lines: int = 3) -> str:
    """Return what the demo wrote with no more than so many lines of each command's output. Pure."""
    kept: list[str] = []
    told = 0
    for line in text.splitlines():
        told = told + 1 if re.match(r"\s+(\x1b\[\d+m)?\|", line) else 0
        if told <= lines:
            kept.append(line)
        elif told == lines + 1:
            kept.append("        | ...")
    return "\n".join(kept)


def main(directory: Path) -> None:
    """Make all of them again."""
    for source in sorted(directory.glob("*.dot")):
        draw(source)
    screen(run_in_terminal(_DOCTOR), "nodeagent doctor", directory / "doctor.svg")
    screen(shortened(run_in_terminal(_DEMO)), "make demo", directory / "demo.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
