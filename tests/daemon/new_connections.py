"""Makes new connections at an even rate and says what became of them: `new_connections ADDRESS PER_SECOND`.

This end closes each first. Otherwise, the ingress controllers would keep a TIME_WAIT for each, and
kube-proxy's masquerading gives connections random source ports: at 400 a second, one in thirty meets an old
one whose timestamps are newer, and some of these wait for a second. No failure is tried again.

Prints "answered N longest SECONDS" about four times a second, and a line for each that failed or was late.
"""

import re
import socket
import sys
import time

from tests.testbed.addresses import SITE

_SECONDS = 10.0
_REPORT_SECONDS = 0.25
_LATE_SECONDS = 0.25
_REQUEST = f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode()
_WHOLE = re.compile(rb".*?\r\nContent-Length: (\d+)(?=\r).*?\r\n\r\n(.*)", re.DOTALL)
"""The header with the body's length, and what has arrived of the body."""


def main(address: str, per_second: int) -> None:
    answered, longest = 0, 0.0
    begin = reported = time.monotonic()
    number = 0
    while True:
        number += 1
        # The next one's time on an even scale: one that was slow is made up for.
        time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
        started = time.monotonic()
        problem = _try(address)
        if problem:
            sys.stdout.write(f"failed at {started - begin:.3f} s: {problem}\n")
        else:
            answered += 1
        now = time.monotonic()
        longest = max(longest, now - started)
        if now - started > _LATE_SECONDS:
            sys.stdout.write(f"late at {started - begin:.3f} s: {now - started:.3f} s\n")
        if now - reported > _REPORT_SECONDS:
            sys.stdout.write(f"answered {answered} longest {longest:.4f}\n")
            sys.stdout.flush()
            answered, longest, reported = 0, 0.0, now


def _try(address: str) -> str:
    """Make one; returns what went wrong. `http.client` would take most of the test's CPU time."""
    answer = b""
    try:
        with socket.create_connection((address, 80), _SECONDS) as connection:
            connection.sendall(_REQUEST)
            while not (whole := _WHOLE.match(answer)) or len(whole[2]) < int(whole[1]):
                piece = connection.recv(65536)
                if not piece:
                    return f"ended early: {answer[:80]!r}"
                answer += piece
    except OSError as error:
        return repr(error)
    return "" if answer.startswith(b"HTTP/1.1 200 ") and b"client=" in whole[2] else f"{answer[:80]!r}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
