"""The kubelet's probes of what runs: what it kills when they fail, how, and that it starts it again.

As kubernetes/pkg/kubelet does it: a container that fails gets the time of the probe's own
terminationGracePeriodSeconds, or else of the pod's; its preStop command runs in that time, then comes the
stop signal, and when the time is up SIGKILL. A process that is stopped handles no signal but that one.
"""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.daemonset.pods import STOP_SIGNALS
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.daemonset.pods import Container, Object, Pod

_LEAST_GRACE_SECONDS = 2.0
"""What is left for the stop signal, however long preStop took."""


class Kubelet:
    """Probes a pod's containers, each in a thread, and restarts those that fail or end.

    A container that ends is started again at once: the first time a kubelet does, later it backs off.
    Whether it is alive is asked once its startup probe succeeds.

    Args:
        pod: Started, and ready.
    """

    def __init__(self, pod: Pod) -> None:
        self.restarts: dict[str, int] = dict.fromkeys(pod.containers, 0)
        self._pod = pod
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(name,)) for name in pod.containers]

    def start(self) -> None:
        """Begin to probe."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Probe no more."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, name: str) -> None:
        failures = 0
        container = self._pod.containers[name]
        alive: Object = container.spec["livenessProbe"]
        probe = alive
        due = time.monotonic() + probe.get("initialDelaySeconds", 0)
        while not self._ending.wait(0.05):
            if container.running and time.monotonic() < due:
                continue
            if container.running:
                due = max(due + probe["periodSeconds"], time.monotonic())
                failures = 0 if _succeeds(container, probe) else failures + 1
                if not failures and probe is not alive:
                    probe = alive
                    due = time.monotonic() + probe.get("initialDelaySeconds", 0)
            if not container.running or failures == probe["failureThreshold"]:
                grace = probe.get("terminationGracePeriodSeconds", self._pod.grace_seconds)
                self._kill(container, float(grace))
                if self._ending.is_set():
                    # One that is not dead yet is still the pod's, which is removed.
                    return
                container = self._pod.restart(name)
                self.restarts[name] += 1
                failures = 0
                probe = container.spec["startupProbe"]
                due = time.monotonic() + probe.get("initialDelaySeconds", 0)

    def _kill(self, container: Container, grace: float) -> None:
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            container.run_pre_stop(timeout=grace)
        if container.running:
            container.signal(STOP_SIGNALS[container.name])
        deadline = max(began + grace, time.monotonic() + _LEAST_GRACE_SECONDS)
        while container.running and time.monotonic() < deadline:
            if self._ending.wait(0.05):
                return
        container.kill()


@contextmanager
def kubelet(pod: Pod) -> Iterator[Kubelet]:
    """Let a kubelet look after a pod as long as this lasts."""
    made = Kubelet(pod)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _succeeds(container: Container, probe: Object) -> bool:
    try:
        return container.execute(probe["exec"]["command"], timeout=probe["timeoutSeconds"]).exit_code == 0
    except (subprocess.TimeoutExpired, WorldError):
        return False  # it hangs, or has ended
