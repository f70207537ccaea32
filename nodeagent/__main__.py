"""`python -m nodeagent`, and the console script."""

import faulthandler
import os
import signal
import sys
from io import TextIOWrapper
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    if os.getpid() == 1:
        # In a container, the kernel drops a signal for which process 1 has no handler yet: a pod that ends
        # while it starts would take its whole grace period. A blocked signal waits (see `agent/loop.py`).
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if "run" in sys.argv[1:3]:
        # SIGHUP reloads the configuration: before there is a handler, it must not end the daemon.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    # Only now, since the imports take most of the start.
    from nodeagent.cli.main import run  # noqa: PLC0415

    if sys.stdout is None:  # closed: the next file that is opened would be standard output
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, TextIOWrapper):
        # Comments of /etc/hosts, for example, have characters that this output may not know.
        sys.stdout.reconfigure(errors="backslashreplace")
    # If an extension module crashes, the log has the threads' stacks.
    faulthandler.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
