"""A kubelet that looks after the containers of a pod: one that has ended is started again.

At once: the first time a kubelet does so, later it backs off. No container has a liveness probe.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemonset.pods import Pod


class Kubelet:
    """Restarts a pod's containers.

    Args:
        pod: Started, and ready.
    """

    def __init__(self, pod: Pod) -> None:
        self.restarts: dict[str, int] = dict.fromkeys(pod.containers, 0)
        self._pod = pod
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._ending.wait(0.05):
            for name, container in [*self._pod.containers.items()]:
                if not container.running:
                    self._pod.restart(name)
                    self.restarts[name] += 1


@contextmanager
def kubelet(pod: Pod) -> Iterator[Kubelet]:
    """Let a kubelet look after a pod as long as this lasts."""
    made = Kubelet(pod)
    made.start()
    try:
        yield made
    finally:
        made.stop()
