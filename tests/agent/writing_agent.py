"""An agent that does nothing but write: a program for tests of the election.

    python -m tests.agent.writing_agent RUN_DIR LOG

LOG gets a line when a pass begins, `+` and the process id, and one when it ends, with `-`. SIGTERM ends it in
order.
"""

import os
import signal
import sys
import time
from pathlib import Path

from nodeagent.agent.writer_election import WriterElection


def write(run_dir: Path, log: Path) -> None:
    """Write as long as it is this agent's turn."""
    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    election = WriterElection(run_dir)
    election.start()
    while not ending:
        if election.is_writer():
            for sign in "+-":
                with log.open("a") as file:
                    file.write(f"{sign}{os.getpid()}\n")
                time.sleep(0.001)
        time.sleep(0.001)
    election.stop()


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
