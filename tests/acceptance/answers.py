"""What commands, pulls and requests in a cluster are answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.acceptance.patience import PATIENCE
from tests.testbed.http import CurlResult, curl_command, curl_result

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.acceptance.cluster_place import ClusterPlace
    from tests.testbed.addresses import Address

_CURL_SECONDS = 10.0 * PATIENCE


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


@dataclass(frozen=True)
class Curled:
    """curl's answer, and the address of who asked."""

    answer: CurlResult
    asker: Address


def curl(
    place: ClusterPlace, node: str, url: str, *, pod: bool = False, resolve: Address | None = None
) -> Curled:
    """Ask for a page on a node or in a pod of it, at an address if one is given: not looking the name up.

    A failed request is an answer, too.
    """
    command = [*curl_command(url, resolve, None, _CURL_SECONDS, proxy_protocol=False), url]
    said = (place.in_pod if pod else place.on_node)(node, command)
    return Curled(curl_result(said.done), said.address)
