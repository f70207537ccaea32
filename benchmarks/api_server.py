"""What one agent asks of the API server, at its start and for one change."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer, objects
from tests.testbed.waiting import wait_until

PART = "Asked of the API server by one agent"
_NODE = "n1"
_CHANGES = 20


def measure(names: int) -> Iterator[Figure]:
    """Measure with that many Ingresses, over HTTP; needs no root and no testbed."""
    with ApiServer() as api, tempfile.TemporaryDirectory() as folder:
        api.store.create(objects.node(_NODE))
        api.store.create_many(objects.ingresses(names))
        with connect(api.write_kubeconfig(Path(folder, "config"))) as connection:
            yield from _measured(api, connection, names)


def _measured(api: ApiServer, connection: Connection, names: int) -> Iterator[Figure]:
    cluster = Cluster(connection, _NODE)
    began = time.monotonic()
    cluster.start()
    try:
        wait_until(lambda: _known(cluster) == names, "the first snapshot", seconds=120.0)
        synced = time.monotonic() - began
        for resource in ("services", "ingresses", "nodes"):
            api.traffic.wait_for_watch(resource)
        requests = len(api.traffic.seen())
        columns = {"requests": requests, "kilobytes": connection.bytes_read / 1000, "seconds": synced}
        yield Figure(PART, "start", "", names, columns)
        before, asked = connection.bytes_read, len(api.traffic.seen())
        for number in range(_CHANGES):
            api.store.create(objects.ingress(f"later-{number}"))
        wait_until(lambda: _known(cluster) == names + _CHANGES, "the changes", seconds=30.0)
        columns = {
            "requests": (len(api.traffic.seen()) - asked) / _CHANGES,
            "kilobytes": (connection.bytes_read - before) / 1000 / _CHANGES,
        }
        yield Figure(PART, "one Ingress created", "", names, columns)
    finally:
        cluster.stop()


def _known(cluster: Cluster) -> int:
    snapshot = cluster.snapshot()
    return -1 if snapshot is None else len(snapshot.ingresses)
