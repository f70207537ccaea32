"""A local user without privileges who takes a port before the relay does, and answers on it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testbed.namespaces import Host

UID = 65534

# IP_FREEBIND (15) and IPV6_FREEBIND (78): the address need not be there, and no privilege is asked for.
SCRIPT = """
import socket, sys
six = ":" in sys.argv[1]
taken = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
taken.setsockopt(*((socket.IPPROTO_IPV6, 78, 1) if six else (socket.IPPROTO_IP, 15, 1)))
for option in set(sys.argv[3:]) - {"silent"}:
    taken.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
taken.bind((sys.argv[1], int(sys.argv[2])))
if "silent" not in sys.argv:
    taken.listen()
print("bound", flush=True)
import time
while "silent" in sys.argv:
    time.sleep(60)
while True:
    connection, peer = taken.accept()
    print("got", *peer, flush=True)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nsquatter\\n")
    connection.close()
"""


def command(address: str, port: int, *options: str) -> list[str]:
    """What runs as that user; it writes `bound` once it has the port, and a line for each connection."""
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    return [*user, "/usr/bin/python3", "-c", SCRIPT, address, str(port), *options]


@contextmanager
def squatting(host: Host, address: str, port: int) -> Iterator[None]:
    """The user holds the port as long as this lasts, and must not have got a connection at its end."""
    name = f"squatter-{address.replace(':', '-')}-{port}"
    host.log_file(name).unlink(missing_ok=True)
    process = host.popen(command(address, port), log=name)
    try:
        process.await_that(lambda: process.said().startswith("bound"), f"taking port {port} of {address}")
        yield
        assert "got" not in process.said(), "the squatter was answered for the load balancer"
    finally:
        process.stop()


@contextmanager
def squatter(port: int, address: str, *options: str) -> Iterator[bool]:
    """Another user who wants the port; yields whether it is his."""
    with subprocess.Popen(
        command(address, port, *options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline() == b"bound\n"
        finally:
            process.kill()
