"""The simulated API server as a process, to try nodeagent with: `python -m tests.apiserver --objects DIR`.

Prints one line with its URL when it listens. SIGTERM and SIGINT end it.
"""

import argparse
import signal
import sys
from pathlib import Path

from .objects import objects_under
from .server import ApiServer, Tls


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 for a free one")
    parser.add_argument("--objects", type=Path, action="append", default=[], help="YAML file or directory")
    parser.add_argument("--tls-cert", type=Path, help="PEM file with the certificate")
    parser.add_argument("--tls-key", type=Path, help="PEM file with its key")
    parser.add_argument("--bookmarks", type=float, default=0.5, help="seconds between bookmarks")
    told = parser.parse_args()
    signals = {signal.SIGTERM, signal.SIGINT}
    # Blocked here, before any thread is there to inherit another mask: sigwait is the only one to see them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    tls = Tls(told.tls_cert, told.tls_key, told.tls_cert) if told.tls_cert else None
    with ApiServer(told.address, told.port, tls=tls) as api:
        api.bookmark_interval = told.bookmarks
        for path in told.objects:
            api.store.create_many(objects_under(path))
        sys.stdout.write(f"listening on {api.url}\n")
        sys.stdout.flush()
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
