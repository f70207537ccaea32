"""The simulated API server where a cluster's would be: reached by the nodes over the network."""

from pathlib import Path
from typing import Self

from nodeagent.sources.kubernetes.credentials import ACCOUNT
from tests.apiserver import ApiServer
from tests.apiserver.objects import objects_under
from tests.apiserver.server import self_signed
from tests.testbed.addresses import LB
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.world import MANIFESTS

_PORT = 6443
WHERE_IT_LISTENS = {"KUBERNETES_SERVICE_HOST": str(LB), "KUBERNETES_SERVICE_PORT": str(_PORT)}
"""As a pod knows it."""


class ClusterApi(ApiServer):
    """An API server that listens in a host's network and knows what the testbed's manifests contain."""

    def __init__(self, host: Host, directory: Path) -> None:
        tls = self_signed(directory, str(LB))
        self.certificate = tls.certificate
        super().__init__(str(LB), _PORT, tls=tls)
        self._host = host
        self._listens = False
        self.kubeconfig = directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.reset()
        self.write_kubeconfig(self.kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def give_account(self, node: Host) -> dict[str, str]:
        """Put a ServiceAccount's files where a kubelet mounts them; returns a pod's variables of the server.

        An agent that finds it in this way starts as quickly as in a pod: without the `kubernetes` package.
        """
        account = Path(f"/proc/{node.pid}/root/{ACCOUNT.resolve().relative_to('/')}")
        account.mkdir(parents=True, exist_ok=True)
        (account / "ca.crt").write_bytes(self.certificate.read_bytes())
        # A server without tokens takes any.
        (account / "token").write_text("the-token", encoding="ascii")
        return WHERE_IT_LISTENS

    def start_listening(self) -> None:
        with inside(self._host):
            super().start_listening()
        self._listens = True

    def stop_listening(self) -> None:
        """Cut all connections and refuse new ones."""
        self._listens = False
        # There, too: the port is held meanwhile, at an address that this machine does not have.
        with inside(self._host):
            super().stop_listening()

    def reset(self) -> None:
        """Be as at first: the manifests' objects alone, no faults, all allowed; listening."""
        self.faults.clear()
        self.access.allow_all()
        objects = list(objects_under(MANIFESTS))
        for resource in self.store.resources:
            wanted = [obj for obj in objects if self.store.resource_of(obj) is resource]
            self.store.replace_all(resource.plural, wanted)
        if not self._listens:
            self.start_listening()
