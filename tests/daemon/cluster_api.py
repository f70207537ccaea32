"""The simulated API server where a cluster's would stand: reached by the nodes over the network."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tests.apiserver import ApiServer
from tests.apiserver.manifests import objects_under
from tests.testbed.addresses import LB
from tests.testbed.inside import inside
from tests.testbed.world import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from tests.testbed.namespaces import Host

_PORT = 6443


class ClusterApi(ApiServer):
    """An API server that listens in a host's network and knows what the testbed's manifests tell.

    Args:
        host: Where it listens.
        directory: For the kubeconfig.
    """

    def __init__(self, host: Host, directory: Path) -> None:
        super().__init__(str(LB), _PORT)
        self._host = host
        self._listens = False
        self.kubeconfig = directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.reset()
        self.write_kubeconfig(self.kubeconfig)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_listening(self) -> None:
        """Listen in the host's network."""
        with inside(self._host):
            super().start_listening()
        self._listens = True

    def stop_listening(self) -> None:
        """Cut all connections and refuse new ones."""
        self._listens = False
        super().stop_listening()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Cut all connections and refuse new ones as long as this lasts."""
        self.stop_listening()
        try:
            yield
        finally:
            if not self._listens:
                self.start_listening()

    def reset(self) -> None:
        """Be as at first: the manifests' objects alone, no faults, all allowed, lists streamed; listening."""
        self.faults.clear()
        self.access.allow_all()
        self.options.watch_list = True
        objects = list(objects_under(MANIFESTS))
        for resource in self.store.resources:
            wanted = [obj for obj in objects if self.store.resource_of(obj) is resource]
            self.store.replace_all(resource.plural, wanted)
        if not self._listens:
            self.start_listening()
