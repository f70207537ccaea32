"""A story shown on a screen: steps in order, up to the first that does not show what it must."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.testbed.demo_screen import Screen
from tests.testbed.errors import NotObservedError, WorldError

FAILED = 1
INTERRUPTED = 130

SceneT = TypeVar("SceneT")


@dataclass(frozen=True)
class Step(Generic[SceneT]):
    """One step: its title, and what it does and observes."""

    title: str
    play: Callable[[SceneT], None]


def play(steps: Sequence[Step[SceneT]], scene: SceneT, screen: Screen) -> None:
    """Play steps one after the other.

    Raises:
        NotObservedError: A step did not show what it must; those after it were not played.
        WorldError: What it is played in failed.
    """
    for step in steps:
        screen.step(step.title)
        step.play(scene)


def tell(perform: Callable[[], int], screen: Screen, what_is_left: str) -> int:
    """Perform, which returns the number of steps, and say how it ended: early, with what is left.

    Returns:
        The exit code: 0 only when every step was observed.
    """
    try:
        steps = perform()
    except NotObservedError as error:
        screen.failure(error.expected, error.seen, error.logs)
    except WorldError as error:
        screen.failure("the testbed doing its part", str(error), "")
    except KeyboardInterrupt:
        screen.end(f"Interrupted after {screen.seconds:.1f} s; {what_is_left}.", good=False)
        return INTERRUPTED
    else:
        screen.end(f"All {steps} steps were observed, in {screen.seconds:.1f} s.", good=True)
        return 0
    screen.end(f"Not all was observed: stopped after {screen.seconds:.1f} s; {what_is_left}.", good=False)
    return FAILED


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP do as a Ctrl-C: what was set up is taken down on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
