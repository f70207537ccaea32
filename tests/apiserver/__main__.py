"""The simulated API server as a process, for benchmarks: it ends by a signal."""

import argparse
import signal
from pathlib import Path

from .objects import objects_under
from .server import ApiServer, Tls


def main() -> None:
    """Serve the objects of a directory; the interval of bookmarks is in seconds."""
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    for path in ("objects", "certificate", "key"):
        parser.add_argument(path, type=Path)
    parser.add_argument("bookmarks", type=float)
    told = parser.parse_args()
    tls = Tls(told.certificate, told.key, told.certificate)
    with ApiServer(told.address, told.port, tls=tls) as api:
        api.bookmark_interval = told.bookmarks
        api.store.create_many(objects_under(told.objects))
        signal.pause()


if __name__ == "__main__":
    main()
