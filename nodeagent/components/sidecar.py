"""Process 1 of the DaemonSet's container `relay`: `python -m nodeagent.components.sidecar DIRECTORY`.

HAProxy needs a configuration to start, and the agent writes it only when it knows what to relay. So the first
one is made here: it listens only on HAProxy's own sockets. Then HAProxy is watched and started again.
"""

import os
import signal
import socket
import sys
from pathlib import Path

from nodeagent.supervisor import Supervisor

_ANSWER_SECONDS = 1.0
_END_SECONDS = 5.0
"""New connections are accepted for this long after SIGTERM. The agent got its own at the same time: if
nodeagent leaves the node, it first removes what points here."""
_QUESTIONS = (("master.sock", b"show proc\n"), ("relay.sock", b"show info\n"))
"""By who answers: the master, without which there are no reloads, and the worker, which relays."""


def prepare(directory: Path) -> None:
    """Restrict the directory to this user (an emptyDir is open to all), with a haproxy.cfg in it. Idempotent.

    A configuration that exists stays: it is the agent's, and this container was started again.

    Raises:
        ApplyError: it can't be made or written.
    """
    # 12 MB, which this process needs only at its start: see `main`.
    from nodeagent.components.relay.activation import RunDirectory  # noqa: PLC0415
    from nodeagent.components.relay.haproxy_config import render  # noqa: PLC0415
    from nodeagent.config.options import RelayOptions  # noqa: PLC0415
    from nodeagent.errors import ApplyError  # noqa: PLC0415

    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise ApplyError(f"{directory} can't be prepared for HAProxy: {error}") from error
    place = RunDirectory(directory)
    if place.read() is None:
        # It relays nothing, so few descriptors suffice: HAProxy starts whatever their limit is, and the agent
        # reports it.
        place.install(render((), directory, RelayOptions(max_connections=100)))


def answers(directory: Path) -> bool:
    """Return whether HAProxy's master and its worker answer, each within a second."""
    return all(_answers(directory / name, question) for name, question in _QUESTIONS)


def _answers(path: Path, question: bytes) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(str(path))
            connection.sendall(question)
            return connection.recv(1) != b""
    except OSError:
        return False


def _prepare_apart(directory: Path) -> int:
    """Call `prepare` in a process of its own; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        prepare(directory)
    except Exception as error:  # noqa: BLE001 - this process must not go on
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Return the exit code: HAProxy's, or 1 if it can't start."""
    if len(arguments) != 1 or not Path(arguments[0]).is_absolute():
        sys.stderr.write("usage: sidecar DIRECTORY: relay.haproxyDir, an absolute path\n")
        return 1
    directory = Path(arguments[0])
    if code := _prepare_apart(directory):
        return code
    sockets, config = f"{directory}/master.sock,mode,600", f"{directory}/haproxy.cfg"
    command = ["haproxy", "-W", "-db", "-S", sockets, "-f", config]
    # SIGUSR1: no new connections, and open ones end by themselves.
    return Supervisor(command, signal.SIGUSR1, _END_SECONDS, lambda: answers(directory)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
