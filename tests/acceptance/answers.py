"""What commands, pulls and requests in a cluster are answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.acceptance.node_shell import PATIENCE
from tests.testbed.errors import WorldError
from tests.testbed.http import CurlResult, curl_command, curl_results, resolving

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


def curl(
    place: ClusterPlace, node: str, url: str, *, pod: bool = False, resolve: Address | None = None
) -> tuple[CurlResult, Address]:
    """Ask for a page on a node or in a pod of it, at an address if one is given: not looking the name up.

    Returns:
        The answer, which may be that of a failed request, and the address of who asked.
    """
    command = curl_command([(url, resolving(url, resolve))], _CURL_SECONDS)
    said = (place.in_pod if pod else place.on_node)(node, command)
    answers = curl_results(said.done.stdout)
    if not answers:
        raise WorldError(f"{node}: curl: {said.text}")
    return answers[0], said.address
