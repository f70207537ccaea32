"""Where the acceptance steps are played: what they ask of a cluster, whatever it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.testbed.http import CurlResult, curl_command, curl_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import CompletedProcess

    from tests.testbed.addresses import Address

_CURL_SECONDS = 10.0


@dataclass(frozen=True)
class Said:
    """The result of a command, and the address that its machine or pod is known by."""

    done: CompletedProcess[str]
    address: Address

    @property
    def text(self) -> str:
        """Everything that was said."""
        return self.done.stdout + self.done.stderr


@dataclass(frozen=True)
class Pulled:
    """The result of a pull: `ok` only when all of it arrived; else the reason in the runtime's words."""

    ok: bool
    reason: str


class Place(Protocol):
    """A cluster whose load balancer sends the PROXY header, with nodeagent not installed.

    Every method raises a WorldError when the place itself fails; a command that fails is an answer.
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are looked at."""

    @property
    def load_balancer(self) -> Address:
        """The address in the Service's status."""

    @property
    def image(self) -> str:
        """What is pulled: an image in the registry behind the ingress."""

    def on_node(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command on a node, as root and outside every container."""

    def in_pod(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command in a pod of that node, one that is not in the node's network."""

    def pull(self, node: str) -> Pulled:
        """Pull the image on a node as its kubelet does, though the node may have had it before."""

    def install(self) -> None:
        """Install nodeagent; returns when it is ready on every node."""

    def upgrade(self) -> None:
        """Replace each node's pod by a new one; returns when no old one is left."""

    def uninstall(self) -> None:
        """Delete all that was installed; returns when no pod is left."""


@dataclass(frozen=True)
class Curled:
    """curl's answer, and the address of who asked."""

    answer: CurlResult
    asker: Address


def curl(place: Place, node: str, url: str, *, pod: bool = False, resolve: Address | None = None) -> Curled:
    """Ask for a page on a node or in a pod of it.

    Args:
        place: The cluster.
        node: The node.
        url: What to ask for.
        pod: Whether the pod asks.
        resolve: The address to use in place of looking the name up.

    Returns:
        The answer; a failed request is one, too.
    """
    command = [*curl_command(url, resolve, None, _CURL_SECONDS, proxy_protocol=False), url]
    said = (place.in_pod if pod else place.on_node)(node, command)
    return Curled(curl_result(said.done), said.address)
