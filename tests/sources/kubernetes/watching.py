"""What the tests of this folder share: a watched cluster that can be waited on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.cluster import Cluster, ResourceState
from nodeagent.sources.kubernetes.connection import Connection, connect
from nodeagent.sources.kubernetes.fail_static import KindState, Lasting
from nodeagent.sources.kubernetes.reflector import Timing
from nodeagent.sources.kubernetes.resources import DISCOVERY, Name
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import ApiServer, Object
from tests.apiserver.server import Front
from tests.testbed.waiting import wait_until

NODE = "n1"
QUICK = Timing(
    idle_timeout=5.0,
    backoff=(0.01, 0.05),
    refused=(0.05, 0.1),
    discovery=(0.05, 0.1),
    lasting=Lasting(denied=0.1, absent=0.2),
)


def ingress_route(host: str) -> Object:
    return {
        "kind": "IngressRoute",
        "apiVersion": "traefik.io/v1alpha1",
        "metadata": {"name": "site"},
        "spec": {"routes": [{"kind": "Rule", "match": f"Host(`{host}`)"}]},
    }


def until(done: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds; fail when it does not on a very slow machine either."""
    wait_until(done, what, seconds=30)


def unordered(snapshot: Snapshot) -> Snapshot:
    members: dict[str, Any] = {one.name: getattr(snapshot, one.name) for one in fields(snapshot)}
    lists = {name: tuple(sorted(held, key=str)) for name, held in members.items() if type(held) is tuple}
    return replace(snapshot, **(members | lists))


@dataclass
class Watched:
    """A running Cluster against an API server, or a proxy before one."""

    api: Front
    connection: Connection
    relay: Name | None = None
    timing: Timing = QUICK
    changes: int = 0
    on_change: Callable[[], None] = lambda: None
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.cluster = Cluster(self.connection, NODE, self.relay, on_change=self._changed, timing=self.timing)

    def _changed(self) -> None:
        with self._lock:
            self.changes += 1
        self.on_change()

    def state(self, name: str = "ingresses") -> ResourceState:
        return next(state for state in self.cluster.states() if state.name == name)

    def watched(self) -> list[ResourceState]:
        """Return the states of the resources that the server has and allows to watch."""
        states = self.cluster.states()
        return [one for one in states if one.state is KindState.KNOWN and one.name != DISCOVERY]

    def snapshot(self) -> Snapshot:
        """Return the snapshot; every resource must have been listed."""
        found = self.cluster.snapshot()
        assert found is not None, "every resource was listed"
        return found

    def ingresses(self) -> list[str]:
        return sorted(found.ref.name for found in self.snapshot().ingresses)

    def services(self) -> list[str]:
        return sorted(found.ref.name for found in self.snapshot().services)

    def until_synced(self) -> None:
        until(lambda: self.cluster.snapshot() is not None, "the first snapshot")

    def until_ingresses(self, *names: str) -> None:
        until(lambda: self.ingresses() == sorted(names), f"ingresses {names}")

    def until_settled(self) -> None:
        """Return when the snapshot is what a fresh list gives."""
        fresh = replace(unordered(read_cluster(self.connection, NODE, self.relay)), nodes=())
        until(lambda: unordered(self.snapshot()) == fresh, "the state of a fresh list")

    def until_watching(self) -> None:
        """Return when every watch is open."""
        for state in self.watched():
            plural = {"node": "nodes", "relay-service": "services", "relay-endpoints": "endpointslices"}
            plural |= {"api-server-endpoints": "endpointslices"}
            name = state.name.partition(".")[0]
            self.api.traffic.wait_for_watch(plural.get(name, name))


@contextmanager
def watching(
    api: Front,
    connection: Connection,
    relay: Name | None = None,
    timing: Timing = QUICK,
    *,
    synced: bool = True,
) -> Iterator[Watched]:
    """Run a Cluster; unless `synced` is false, wait until all its watches are open."""
    watched = Watched(api, connection, relay, timing)
    watched.cluster.start()
    try:
        if synced:
            watched.until_synced()
            watched.until_watching()
        yield watched
    finally:
        api.faults.clear()
        watched.cluster.stop()


def connected(api: ApiServer, folder: Path) -> Connection:
    return connect(api.write_kubeconfig(folder / "kubeconfig"))
