"""Waiting for something to become true, and looking at processes."""

import select
import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.01)
    return True


def alive(name: str) -> list[int]:
    """The processes of that name in this pid namespace that have not ended (zombies have)."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                status = (directory / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            command, state = status.partition("(")[2].rpartition(") ")[::2]
            if command == name and not state.startswith("Z"):
                found.append(int(directory.name))
    return sorted(found)
