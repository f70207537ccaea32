"""`python -m nodeagent`, and the console script."""

import faulthandler
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if os.getpid() == 1:
        # In a container, the kernel drops a signal for which process 1 has no handler yet: a pod that ends
        # while it starts would take its whole grace period. A blocked signal waits (see `agent/loop.py`).
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # Only now, since the imports take most of the start.
    from nodeagent.cli.main import run  # noqa: PLC0415

    # Comments of /etc/hosts, for example, have characters that this output may not know.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # If an extension module crashes, the log has the threads' stacks.
    faulthandler.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
