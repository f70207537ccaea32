"""A simulated Kubernetes API server over real HTTP, for tests of a list and watch client.

    with ApiServer() as api:
        api.store.create(objects.service("web", "default"))
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        api.faults.add(faults.Answer(503, retry_after=1), path="*/ingresses", verbs={"list"}, times=2)
        api.traffic.wait_for_watch("services")

What it imitates, and where that is written down, is written at the head of each module. A request that no one
sends here, such as one that makes no sense, is none of it: it fails the test, when the server closes.
"""

from . import faults, objects
from .access import Rule
from .resources import GATEWAY_API, ApiError, Object, Resource, custom
from .server import ApiServer, Tls
from .store import Store
from .traffic import Ending

__all__ = [
    "GATEWAY_API",
    "ApiError",
    "ApiServer",
    "Ending",
    "Object",
    "Resource",
    "Rule",
    "Store",
    "Tls",
    "custom",
    "faults",
    "objects",
]
