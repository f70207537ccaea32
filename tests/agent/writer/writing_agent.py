"""An agent that does nothing but write: a program for tests of ownership.

    python -m tests.agent.writer.writing_agent RUN_DIR PASSES

PASSES is a directory that shows whether another agent writes at the same time. Prints `writer` and `standby`
as it becomes one or the other, and `violation` when it finds another at work. SIGTERM ends it in order.
"""

import fcntl
import os
import secrets
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from nodeagent.agent.writer.writer_election import WriterElection


class Mark:
    """The file that says who is at a pass, locked as long as that process lives."""

    def __init__(self, passes: Path) -> None:
        self._mark = passes / "now"
        self._own = passes / f"own.{secrets.token_hex(8)}"
        self._descriptor = os.open(self._own, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def put(self) -> bool:
        """Begin a pass; false when another, which lives, is at one."""
        pause = threading.Event()
        for _ in range(200):
            try:
                self._mark.hardlink_to(self._own)
            except FileExistsError:
                # One that was killed amid its pass left it; the kernel may still be taking it down.
                if _is_dead(self._mark):
                    self._mark.unlink()
                pause.wait(0.001)
            else:
                return True
        return False

    def take(self) -> bool:
        """End the pass; false when another has begun one meanwhile."""
        ours = os.path.samestat(self._mark.stat(), os.fstat(self._descriptor))
        self._mark.unlink()
        return ours


def _is_dead(mark: Path) -> bool:
    with mark.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def make_pass(passes: Path, mark: Mark) -> None:
    """Write under the check."""
    if not mark.put():
        print("violation: another is at a pass", flush=True)
        return
    with (passes / "log").open("a") as log:
        log.write(f"{os.getpid()}\n")
    if not mark.take():
        print("violation: another began a pass", flush=True)


def start(output: Connection, run_dir: Path, passes: Path, prefix: tuple[str, ...]) -> None:
    """Be the program, in a process that a fork server made; with a prefix, start it by that command."""
    os.dup2(output.fileno(), sys.stdout.fileno())
    if prefix:
        program = [*prefix, sys.executable, "-m", __name__, str(run_dir), str(passes)]
        os.execvp(program[0], program)  # noqa: S606 - a test's own
    write(run_dir, passes)


def write(run_dir: Path, passes: Path) -> None:
    """Write as long as it is this agent's turn."""
    changed = threading.Event()
    ended = threading.Event()

    # In a thread: a handler could interrupt this one while it holds an event's own lock.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def end() -> None:
        signal.sigwait({signal.SIGTERM})
        ended.set()
        changed.set()

    threading.Thread(target=end, daemon=True).start()
    ownership = WriterElection(run_dir, changed.set)
    ownership.start()
    before = None
    mark = Mark(passes)
    while not ended.is_set():
        now = ownership.is_writer
        if now != before:
            print("writer" if now else "standby", flush=True)
            before = now
        if now:
            make_pass(passes, mark)
        ownership.release_if_superseded()
        changed.wait(0.002 if now else None)
        changed.clear()
    ownership.stop()


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
