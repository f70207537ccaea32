"""Asks this container's agent for its state: `python -m nodeagent.agent.reporting.probe RUN_DIR /readyz`.

For a person in the container, `status` and `bundle`; the DaemonSet's own probes read a file (probe_files.py).
It asks the agent of its own container, whatever port that has: by TCP, during an upgrade's overlap, the older
agent would answer. It imports next to nothing: about 20 ms, where the whole command line takes 200.
"""

import socket
import sys
from time import monotonic

from nodeagent.agent.reporting.socket_path import sockets

_SECONDS = 3.0
_LONGEST = 65536


class NoAgentError(Exception):
    """No agent of this PID namespace answers; the text says where it was searched and why it failed."""


def ask(run_dir: str, page: str, timeout: float = _SECONDS) -> tuple[int, str]:
    """Return the HTTP status and the text of an agent's page, such as `/readyz`.

    Args:
        run_dir: the agent's `relay.runDir`.
        page: the path.
        timeout: seconds for all of it.

    Raises:
        NoAgentError: no agent of this PID namespace answers.
    """
    deadline = monotonic() + timeout
    problem = "no agent has a socket there"
    try:
        for path in sockets(run_dir, own_namespace=True):
            try:
                answer = _exchange(path, f"GET {page} HTTP/1.0\r\n\r\n".encode(), deadline)
            except (ConnectionRefusedError, FileNotFoundError) as error:
                problem = f"{path}: {error.strerror}"
                continue  # left by a crash; an older socket may belong to the living agent
            head, _, body = answer.decode("utf-8", "replace").partition("\r\n\r\n")
            words = head.split(None, 2)
            if len(words) > 1 and words[1].isdecimal():
                return int(words[1]), body
            raise NoAgentError(f"{path}: the connection was closed before the answer")
    except OSError as error:
        raise NoAgentError(f"no agent answers in {run_dir}: {error}") from error
    raise NoAgentError(f"no agent of this container answers in {run_dir}: {problem}")


def _exchange(path: str, request: bytes, deadline: float) -> bytes:
    answer = bytearray()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(deadline - monotonic(), 0.001))
        connection.connect(path)
        connection.sendall(request)
        while chunk := connection.recv(_LONGEST):
            answer += chunk
            connection.settimeout(max(deadline - monotonic(), 0.001))
    return bytes(answer)


def main(arguments: list[str]) -> int:
    """Print the page; return 0 if the agent says yes, 1 if it says no or does not answer."""
    if len(arguments) != 2:
        sys.stderr.write("usage: probe RUN_DIR PAGE, such as /run/nodeagent /readyz\n")
        return 1
    try:
        status, text = ask(arguments[0], arguments[1])
    except NoAgentError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(text)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
