"""How the demo shows its steps: numbered steps, commands and what they said, what was observed."""

import os
import sys
import time

_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"


class Screen:
    """Writes to standard output, with colors only if that is a terminal.

    Args:
        steps: How many steps there will be.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._shown = 0
        self._started = time.monotonic()
        self._colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    @property
    def seconds(self) -> float:
        """The time since the demo began."""
        return time.monotonic() - self._started

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._shown += 1
        number = f"[{self._shown:2}/{self._steps}]"
        self._write(
            f"\n{self._styled(f'{number} {title}', _BOLD)}  {self._styled(f'{self.seconds:.1f} s', _DIM)}"
        )

    def command(self, host: str, command: str) -> None:
        """Show a command before it runs."""
        self._write(f"        {host}# {self._styled(command, _BOLD)}")

    def said(self, text: str) -> None:
        """Show what a command said."""
        for line in text.rstrip().splitlines():
            self._write(f"        {self._styled('|', _DIM)} {line}".rstrip())

    def observed(self, what: str) -> None:
        """Print that something was seen as expected."""
        self._write(f"     {self._styled('ok', _GREEN)} {what}")

    def note(self, text: str) -> None:
        """Print something that is neither a command nor an observation."""
        self._write(f"        {text}")

    def failure(self, expected: str, seen: str, logs: str) -> None:
        """Print that something was not seen as expected."""
        self._write(f"{self._styled('NOT OK', _RED)} expected: {expected}")
        self._write(
            "           seen: " + "\n                 ".join(seen.rstrip().splitlines() or ["nothing"])
        )
        if logs:
            self._write(logs.rstrip())

    def end(self, text: str, *, good: bool) -> None:
        """Write the summary line."""
        self._write(f"\n{self._styled(text, _GREEN if good else _RED)}")

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def _write(self, text: str) -> None:
        print(text, flush=True)
