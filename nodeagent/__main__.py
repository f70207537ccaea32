"""`python -m nodeagent`, and the console script."""

import faulthandler
import sys

from nodeagent.cli.main import run


def main() -> None:
    """Run the command line and exit with its code."""
    # If an extension module crashes, the log has the threads' stacks.
    faulthandler.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
