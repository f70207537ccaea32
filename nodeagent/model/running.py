"""What the cluster says beside its objects: asked once, for a person (`nodeagent doctor`)."""

from dataclasses import dataclass

from msgspec import Struct

from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import ObjectRef


class RunningPod(Struct, frozen=True):
    """A pod on this node: its app by the label app.kubernetes.io/name, and the names of its images."""

    ref: ObjectRef
    app: str
    images: tuple[str, ...]


class NodeAddresses(Struct, frozen=True):
    """The addresses of the cluster's nodes by which they reach each other (InternalIP), both families.

    `nodes_left` is how many nodes there are whose addresses were not read.
    """

    addresses: tuple[IPAddress, ...] = ()
    nodes_left: int = 0


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """What was asked of the API server; what could not be had is empty or None, with its reason.

    Attributes:
        version: the server's version, such as v1.33.2; empty where it is not known.
        pods: those on this node.
        dns: the ClusterIP of the cluster's DNS.
        policy_api: the version in which MutatingAdmissionPolicies are served, v1 or v1beta1; empty where they
            are not, or where that is not known.
        nodes: the nodes' addresses.
        why: what could not be had, and why: "version", "pods", "dns", "policies" or "nodes" to the reason.
    """

    version: str = ""
    pods: tuple[RunningPod, ...] | None = None
    dns: IPAddress | None = None
    policy_api: str = ""
    nodes: NodeAddresses | None = None
    why: tuple[tuple[str, str], ...] = ()

    def reason(self, what: str) -> str:
        """Why `what` could not be had."""
        return dict(self.why).get(what, "")
