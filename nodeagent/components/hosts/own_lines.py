"""Which lines nodeagent may have written itself: asked only where a marker of the block is missing. Pure."""

import os.path
import re
from ipaddress import ip_address

from msgspec import Struct

from nodeagent.model.addresses import IPNetwork

_WRITTEN = re.compile(rb"([0-9a-f.:]+)\t([A-Za-z0-9._-]+)\r?\n?")
_TORN = re.compile(rb"([0-9a-f.:]+)\t[A-Za-z0-9._-]*\r?")
_ADDRESS_START = re.compile(rb"[0-9a-f.:]+")


class OwnLines(Struct, frozen=True):
    """Recognises our own lines by the networks their addresses come from.

    `networks` are the relay ranges and, as a /32 or /128, the relay Service's ClusterIP.
    """

    networks: tuple[IPNetwork, ...]

    def whole(self, line: bytes) -> bool:
        """Tell whether `line`, with or without its end, is exactly `address<TAB>name` of ours."""
        match = _WRITTEN.fullmatch(line)
        return match is not None and self._holds(match[1])

    def torn(self, line: bytes) -> bool:
        """Tell whether `line`, the last of a file and without newline, starts like a line of ours."""
        match = _TORN.fullmatch(line)
        if match is not None:
            return self._holds(match[1])
        if _ADDRESS_START.fullmatch(line) is None:
            return False
        text = line.decode("ascii")
        return any(_may_start_address(text, network) for network in self.networks)

    def _holds(self, written: bytes) -> bool:
        try:
            address = ip_address(written.decode("ascii"))
        except ValueError:
            return False
        return any(address in network for network in self.networks)


def _may_start_address(text: str, network: IPNetwork) -> bool:
    """Tell whether `text` is how some address of `network` starts, judged by what its ends share."""
    ends = [str(network[0]), str(network[-1])]
    shared = os.path.commonprefix(ends)  # noqa: RUF071 - characters, not path components, are meant
    return text.startswith(shared) or shared.startswith(text)
