"""New connections at an even rate through a relay to a site, and what became of them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path

from nodeagent.model.addresses import Endpoint
from tests.components.relay.backend import connect

SERVED = "HTTP/1.1 200"


def start_site(server: Endpoint) -> None:
    """A HAProxy that requires the PROXY header and answers each request."""
    file = Path("/run/site.cfg")
    file.write_text(
        "defaults\n mode http\n timeout client 10s\n timeout http-request 10s\n"
        f"frontend site\n bind {server} accept-proxy\n"
        " http-request return status 200 content-type text/plain string served\n"
    )
    subprocess.run(["haproxy", "-D", "-f", str(file)], check=True)


@contextmanager
def load(endpoint: Endpoint, per_second: int) -> Iterator[list[str]]:
    """Make so many a second while the block runs; after it, the list has each one's answer or error."""
    fork = get_context("fork")
    end, result = fork.Event(), fork.SimpleQueue()
    process = fork.Process(target=_connect_until, args=(end, endpoint, per_second, result))
    process.start()
    answers: list[str] = []
    yield answers
    end.set()
    answers += result.get()
    process.join()


def _connect_until(end: Event, endpoint: Endpoint, per_second: int, result: SimpleQueue[list[str]]) -> None:
    """One after the other: on a loopback interface each takes a fraction of a millisecond."""
    began = time.monotonic()
    answers: list[str] = []
    while not end.wait(max(0.0, began + len(answers) / per_second - time.monotonic())):
        try:
            with connect(endpoint) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answers.append(connection.recv(len(SERVED)).decode())
        except OSError as error:
            answers.append(f"{time.monotonic() - began:.3f} s: {error!r}")
    result.put(answers)
