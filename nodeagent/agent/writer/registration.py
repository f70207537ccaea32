"""The agents of a node, each by a file that it keeps locked as long as it lives.

They may run in different pid namespaces (an upgrade's two pods), so no process id shows whether one is alive;
the kernel releases a lock (flock(2)) with its process, however that ends. A file's name is the agent's age on
the clock that all containers of a node share (CLOCK_BOOTTIME); the larger is the newer.
"""

import fcntl
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import Struct

from nodeagent.errors import ApplyError

DIRECTORY = "agents"
_NAME = re.compile(r"(\d+)-([0-9a-f]{8})")
_UNNAMED = ".new-"


class Agent(Struct, frozen=True, order=True):
    """An agent; of two, the greater is the newer."""

    born: int
    """Nanoseconds of CLOCK_BOOTTIME."""
    tie: str
    """Random, for two started at the same instant."""

    @classmethod
    def now(cls) -> Self:
        """Return one that starts at this moment."""
        return cls(time.clock_gettime_ns(time.CLOCK_BOOTTIME), secrets.token_hex(4))

    @property
    def name(self) -> str:
        """Its file's name."""
        return f"{self.born}-{self.tie}"


def register(run_dir: Path, agent: Agent) -> int:
    """Make the agent's file, locked from the first moment that it can be seen; return its descriptor.

    Raises:
        ApplyError: the directory can't be made or written.
    """
    directory = run_dir / DIRECTORY
    while True:
        unnamed = directory / f"{_UNNAMED}{agent.name}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Writable, so that its end notifies those who watch the directory (IN_CLOSE_WRITE).
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(unnamed, flags, 0o600)
        except FileNotFoundError:
            continue  # an agent that left removed the empty directory
        except OSError as error:
            raise ApplyError(
                f"{directory}: {error.strerror}: this agent could not register there; nothing was changed. "
                "Run as root, and make relay.runDir writable."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            unnamed.rename(directory / agent.name)
        except FileNotFoundError:
            os.close(descriptor)  # swept as a leftover before it was locked
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return descriptor


def stands(run_dir: Path, agent: Agent, descriptor: int) -> bool:
    """Return whether the agent's file still exists, and is the same."""
    try:
        found = (run_dir / DIRECTORY / agent.name).stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def newest(run_dir: Path, but: Agent) -> Agent | None:
    """Return the newest living agent that is newer than `but`; None if it is the newest itself."""
    for agent in sorted(_agents(run_dir), reverse=True):
        if agent <= but:
            return None
        if not _is_dead(run_dir / DIRECTORY / agent.name):
            return agent
    return None


def sweep(run_dir: Path) -> None:
    """Remove the files of dead agents, and the directory if no agent is left. Under the node's lock."""
    directory = run_dir / DIRECTORY
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are wanted
    except FileNotFoundError:
        return
    for name in names:
        if (_NAME.fullmatch(name) or name.startswith(_UNNAMED)) and _is_dead(directory / name):
            (directory / name).unlink(missing_ok=True)
    leave(run_dir)


def leave(run_dir: Path) -> None:
    """Remove the directory if it is empty; idempotent."""
    with suppress(OSError):  # ENOTEMPTY: others are alive; ENOENT: another was faster
        (run_dir / DIRECTORY).rmdir()


def unregister(run_dir: Path, agent: Agent, descriptor: int) -> None:
    """Remove the agent's file and release its lock; once."""
    (run_dir / DIRECTORY / agent.name).unlink(missing_ok=True)
    os.close(descriptor)
    leave(run_dir)


def _agents(run_dir: Path) -> list[Agent]:
    try:
        names = os.listdir(run_dir / DIRECTORY)  # noqa: PTH208 - names are wanted
    except FileNotFoundError:
        return []
    return [Agent(int(found[1]), found[2]) for name in names if (found := _NAME.fullmatch(name))]


def _is_dead(path: Path) -> bool:
    """Whether no process holds the file's lock. Takes a shared one, so that two checks don't collide."""
    try:
        # Read-only: closing it wakes no agent.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
