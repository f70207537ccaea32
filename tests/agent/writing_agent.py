"""An agent that does nothing but write: a program for tests of the election.

    python -m tests.agent.writing_agent RUN_DIR PASSES

PASSES is a directory that shows whether another agent writes at the same time: `log` gets a line with its
process id for each pass, `violations` one for each pass during which another was at work. SIGTERM ends it in
order.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from pathlib import Path

from nodeagent.agent.writer_election import WriterElection


class Mark:
    """The file that says who is at a pass, locked as long as that process lives."""

    def __init__(self, passes: Path) -> None:
        self._mark = passes / "now"
        self._own = passes / f"own.{secrets.token_hex(8)}"
        self._descriptor = os.open(self._own, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def put(self) -> bool:
        """Begin a pass; false when another, which lives, is at one."""
        for _ in range(200):
            try:
                self._mark.hardlink_to(self._own)
            except FileExistsError:
                # One that was killed amid its pass left it; the kernel may still be taking it down.
                if _is_dead(self._mark):
                    self._mark.unlink()
                time.sleep(0.001)
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
    alone = mark.put()
    with (passes / "log").open("a") as log:
        log.write(f"{os.getpid()}\n")
    if not (alone and mark.take()):
        with (passes / "violations").open("a") as violations:
            violations.write(f"{os.getpid()}\n")


def write(run_dir: Path, passes: Path) -> None:
    """Write as long as it is this agent's turn."""
    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    election = WriterElection(run_dir)
    election.start()
    mark = Mark(passes)
    while not ending:
        if election.is_writer():
            make_pass(passes, mark)
        time.sleep(0.002)
    election.stop()


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
