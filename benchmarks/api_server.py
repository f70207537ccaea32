"""What one agent asks of the API server, at its start, for one change, and in a cluster of many Nodes."""

import tempfile
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, Goal
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer, Object, objects
from tests.testbed.waiting import wait_until

PART = "Asked of the API server by one agent"
_NODE = "n1"
_CHANGES = 20

NODES = "One agent in a cluster of many Nodes that send heartbeats"
_BEAT_SECONDS = 300.0
"""Between two heartbeats of a kubelet in its Node's status."""
_IMAGES = 50
_NAMES = 1000
_BOOKMARK_SECONDS = 60.0
"""As the real server sends them (KEP-956)."""
_REST_SECONDS = 130.0


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


def measure_nodes(nodes: int, hostnames: bool) -> Iterator[Figure]:  # noqa: FBT001 - of a row of a table
    """Measure with that many Nodes of 15 kB, each written every five minutes, and with 1,000 Ingresses.

    If no `hostnames` are wanted, what claims them is not read.
    """
    with ApiServer() as api, tempfile.TemporaryDirectory() as folder:
        api.bookmark_interval = _BOOKMARK_SECONDS
        api.store.create(objects.node(_NODE))
        api.store.create_many(_node(number) for number in range(nodes))
        api.store.create_many(objects.ingresses(_NAMES))
        with connect(api.write_kubeconfig(Path(folder, "config"))) as connection:
            cluster = Cluster(connection, _NODE, hostnames=hostnames)
            cluster.start()
            try:
                expected = _NAMES if hostnames else 0
                wait_until(lambda: _known(cluster) == expected, "the first snapshot", seconds=120.0)
                settled = lambda: not (found := cluster.snapshot()) or not found.pending  # noqa: E731
                wait_until(settled, "all kinds to be known or absent", seconds=60.0)
                columns: dict[str, float] = {
                    "requests": len(api.traffic.seen()),
                    "kilobytes": connection.bytes_read / 1000,
                    "watches": len(api.traffic.watches()),
                }
                read, used, began = connection.bytes_read, _cpu_seconds(), time.monotonic()
                for beat in count():
                    if time.monotonic() - began >= _REST_SECONDS:
                        break
                    heartbeat = {
                        "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": str(beat)}]}
                    }
                    api.store.patch("nodes", f"node-{beat % nodes}", "", heartbeat)
                    time.sleep(max(0.0, began + (beat + 1) * _BEAT_SECONDS / nodes - time.monotonic()))
                took = time.monotonic() - began
                columns["bytes/s"] = (connection.bytes_read - read) / took
                columns["percent"] = (_cpu_seconds() - used) * 100 / took
            finally:
                cluster.stop()
    what = f"{nodes:,} Nodes" if hostnames else f"{nodes:,} Nodes, hosts.enabled: false"
    yield Figure(NODES, what, "", _NAMES, columns, Goal("bytes/s", 2000))


def _node(number: int) -> Object:
    """Build a Node as large as they are: kubelet lists images in it."""
    made = deepcopy(objects.node(f"node-{number}"))
    made["status"]["images"] = [
        {"names": [f"registry.k8s.io/component-{image}/some-image@sha256:{image * 7919:064x}"] * 2}
        for image in range(_IMAGES)
    ]
    return made


def _cpu_seconds() -> float:
    """Return the CPU time of the threads that list and watch."""
    threads = (each for each in threading.enumerate() if each.name.startswith(("watch-", "discovery")))
    clocks = (time.pthread_getcpuclockid(each.ident) for each in threads if each.ident is not None)
    return sum(map(time.clock_gettime, clocks))
