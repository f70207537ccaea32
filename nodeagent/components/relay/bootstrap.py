"""Prepares the files of a HAProxy sidecar: `python -m nodeagent.components.relay.bootstrap DIRECTORY`.

For the DaemonSet's init container. HAProxy needs a configuration to start, and the agent writes it only
when it knows what to relay. This one listens only on HAProxy's own sockets. An earlier one is
replaced: it may be from before a reboot, and HAProxy would not start with addresses that no longer exist.
"""

import sys
from pathlib import Path

from nodeagent.components.relay.haproxy_config import Limits, render
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.errors import ApplyError

# It relays nothing, so few descriptors suffice: HAProxy starts whatever their limit is, and the agent reports
# it.
_LIMITS = Limits(connections=100)


def prepare(directory: Path) -> None:
    """Restrict the directory to this user (an emptyDir is open to all), with a haproxy.cfg in it.

    Raises:
        ApplyError: it can't be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise ApplyError(f"{directory} can't be prepared for HAProxy: {error}") from error
    RunDirectory(directory).install(render((), directory, _LIMITS))


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 if HAProxy can start."""
    if len(arguments) != 1 or not Path(arguments[0]).is_absolute():
        sys.stderr.write("usage: bootstrap DIRECTORY: relay.haproxyDir, an absolute path\n")
        return 1
    try:
        prepare(Path(arguments[0]))
    except ApplyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
