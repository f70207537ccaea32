"""`python -m nodeagent`, and the console script."""

import sys

from nodeagent.cli.main import run


def main() -> None:
    """Runs the command line and exits with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
