"""What one agent asks of the API server, at its start and for one change: by lists, and by streamed ones."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Figure
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.timing import Timing
from tests.apiserver import ApiServer, objects
from tests.testbed.waiting import wait_until

PART = "Asked of the API server by one agent"
_NODE = "n1"
_CHANGES = 20


def measure(names: int) -> Iterator[Figure]:
    """Measure both ways with that many Ingresses, over HTTP; needs no root and no testbed."""
    for streaming in (False, True):
        with ApiServer() as api, tempfile.TemporaryDirectory() as folder:
            api.store.create(objects.node(_NODE))
            api.store.create_many(objects.ingresses(names))
            with connect(api.write_kubeconfig(Path(folder, "config"))) as connection:
                yield from _measured(api, connection, names, streaming=streaming)


def _measured(api: ApiServer, connection: Connection, names: int, *, streaming: bool) -> Iterator[Figure]:
    timing = replace(Timing(), streaming=streaming)
    cluster = Cluster(connection, _NODE, timing=timing)
    way = "streamed lists" if streaming else "lists in pages"
    began = time.monotonic()
    cluster.start()
    try:
        wait_until(lambda: _known(cluster) == names, "the first snapshot", seconds=120.0)
        synced = time.monotonic() - began
        for resource in ("services", "ingresses", "nodes"):
            api.wait_for_watch(resource)
        requests = sum(api.traffic.counts().values())
        columns = {"requests": requests, "kilobytes": connection.bytes_read / 1000, "seconds": synced}
        yield Figure(PART, f"start, by {way}", "", names, columns)
        before, asked = connection.bytes_read, sum(api.traffic.counts().values())
        for number in range(_CHANGES):
            api.store.create(objects.ingress(f"later-{number}"))
        wait_until(lambda: _known(cluster) == names + _CHANGES, "the changes", seconds=30.0)
        columns = {
            "requests": (sum(api.traffic.counts().values()) - asked) / _CHANGES,
            "kilobytes": (connection.bytes_read - before) / 1000 / _CHANGES,
        }
        yield Figure(PART, f"one Ingress created, by {way}", "", names, columns)
    finally:
        cluster.stop()


def _known(cluster: Cluster) -> int:
    snapshot = cluster.snapshot()
    return -1 if snapshot is None else len(snapshot.ingresses)
