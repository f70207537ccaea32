"""New connections at an even rate through a relay to a site, and what became of them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.model.addresses import Endpoint
from tests.components.relay import new_connections


class Load:
    """What is known at its end."""

    answered = 0
    failures: tuple[str, ...] = ()


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
def load(endpoint: Endpoint, per_second: int) -> Iterator[Load]:
    """Make so many a second while the block runs; their number is known after it."""
    command = [sys.executable, new_connections.__file__, str(endpoint.address), str(endpoint.port)]
    result = Load()
    with subprocess.Popen(
        [*command, str(per_second)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield result
        answered, *failures = process.communicate(timeout=20)[0].splitlines()
    result.answered = int(answered.removeprefix("answered "))
    result.failures = tuple(failures)
