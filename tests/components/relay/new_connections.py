"""Makes new connections at an even rate until its standard input ends: `new_connections ADDRESS PORT RATE`.

Prints how many were answered, then a line for each that was not, with the second in which it began.
"""

import select
import socket
import sys
import time

_SECONDS = 5.0


def main(address: str, port: int, per_second: int) -> None:
    """Make them one after the other: on a loopback interface each takes a fraction of a millisecond."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    began = time.monotonic()
    answered, failures = 0, []
    number = 0
    while True:
        number += 1
        left = began + number / per_second - time.monotonic()
        if select.select([sys.stdin], [], [], max(0.0, left))[0]:
            break
        try:
            with socket.socket(family) as connection:
                connection.settimeout(_SECONDS)
                connection.connect((address, port))
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = connection.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200 "):
                failures.append(f"{time.monotonic() - began:.3f} s: {answer!r}")
            else:
                answered += 1
        except OSError as error:
            failures.append(f"{time.monotonic() - began:.3f} s: {error!r}")
    print("\n".join([f"answered {answered}", *failures]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
