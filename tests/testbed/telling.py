"""A story shown on a screen: steps in order, up to the first that does not show what it must."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import click

from tests.testbed.errors import NotObservedError, WorldError

FAILED = 1
INTERRUPTED = 130

SceneT = TypeVar("SceneT")


class Screen:
    """Writes numbered steps to standard output, in color to a terminal: commands, answers, observations."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._shown = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def step(self, title: str) -> None:
        self._shown += 1
        head = click.style(f"[{self._shown:2}/{self._steps}] {title}", fg="cyan", bold=True)
        self._write(f"\n{head}  {self.seconds:.1f} s")

    def command(self, host: str, command: str) -> None:
        self._write(f"        {host}# {click.style(command, bold=True)}")

    def said(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            self._write(f"        | {line}".rstrip())

    def observed(self, what: str) -> None:
        self._write(f"     {click.style('ok', fg='green')} {what}")

    def note(self, text: str) -> None:
        self._write(f"        {text}")

    def failure(self, expected: str, seen: str, logs: str = "") -> None:
        self._write(f"{click.style('NOT OK', fg='red', bold=True)} expected: {expected}")
        shown = "\n                 ".join(seen.rstrip().splitlines() or ["nothing"])
        self._write(f"           seen: {shown}")
        if logs:
            self._write(logs.rstrip())

    def end(self, text: str, colour: str) -> None:
        self._write("\n" + click.style(text, fg=colour, bold=True))

    def _write(self, text: str) -> None:
        click.echo(text, color=False if os.environ.get("NO_COLOR") else None)


@dataclass(frozen=True)
class Step(Generic[SceneT]):
    """One step: its title, and what it does and observes."""

    title: str
    play: Callable[[SceneT], None]


def play(steps: Sequence[Step[SceneT]], scene: SceneT, screen: Screen) -> None:
    for step in steps:
        screen.step(step.title)
        step.play(scene)


def tell(perform: Callable[[], int], screen: Screen, what_is_left: str) -> int:
    """Perform, which returns the number of steps, and say how it ended: early, with what is left."""
    try:
        steps = perform()
    except NotObservedError as error:
        screen.failure(error.expected, error.seen, error.logs)
    except WorldError as error:
        screen.failure("the testbed doing its part", str(error))
    except KeyboardInterrupt:
        screen.end(f"Interrupted after {screen.seconds:.1f} s; {what_is_left}.", "yellow")
        return INTERRUPTED
    else:
        screen.end(f"passed: all {steps} steps were observed, in {screen.seconds:.1f} s", "green")
        return 0
    screen.end(f"failed: stopped after {screen.seconds:.1f} s; {what_is_left}", "red")
    return FAILED


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP do as a Ctrl-C: what was set up is taken down on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
