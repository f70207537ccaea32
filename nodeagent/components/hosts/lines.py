"""The lines of a hosts file: the user's own, and those that nodeagent may have written itself. Pure.

Which lines are nodeagent's is in question only if a marker of the managed block is missing.
"""

import io
import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from msgspec import Struct

from nodeagent.model.addresses import IPNetwork
from nodeagent.model.facts import UserHostsLine
from nodeagent.node_files import hosts_fields

HAIRPIN_PROXY_MARK = b"# Added by hairpin-proxy"
"""The end of each line that hairpin-proxy wrote (its main.rb: COMMENT_LINE_SUFFIX)."""


def legacy_lines(user: bytes, line_numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the names of each of hairpin-proxy's lines among the user's, by its number in the file."""
    lines = zip(line_numbers, _lines(user), strict=True)
    return {number: hosts_fields(line)[1] for number, line in lines if _is_legacy(line)}


def without_legacy_lines(user: bytes) -> bytes:
    """Return the user's bytes without the lines of hairpin-proxy."""
    return b"".join(line for line in _lines(user) if not _is_legacy(line))


def names_set(user: bytes, line_numbers: Sequence[int]) -> dict[str, UserHostsLine]:
    """Map each name, in lower case, to the first of the user's lines that sets it.

    A line of the user's own takes precedence over one that hairpin-proxy wrote, so that adopting the latter
    never hides the former. A line whose first field is not an address sets nothing, as for the C libraries.
    Names are compared as in glibc, ignoring case.
    """
    names: dict[str, UserHostsLine] = {}
    for number, line in zip(line_numbers, _lines(user), strict=True):
        address, line_names = hosts_fields(line)
        if not _is_address(address):
            continue
        found = UserHostsLine(number, address, by_hairpin_proxy=_is_legacy(line))
        for name in line_names:
            known = names.get(name)
            if known is None or (known.by_hairpin_proxy and not found.by_hairpin_proxy):
                names[name] = found
    return names


def _lines(user: bytes) -> list[bytes]:
    return io.BytesIO(user).readlines()


def _is_legacy(line: bytes) -> bool:
    # A user's comment with the same end is not a line of hairpin-proxy: that always has an address.
    return line.strip().endswith(HAIRPIN_PROXY_MARK) and _is_address(hosts_fields(line)[0])


def _is_address(text: str) -> bool:
    """Return whether a C library accepts `text` as an address.

    musl accepts all that inet_aton does ("127.1"), glibc only full addresses; a line that works with one of
    them is the user's decision all the same.
    """
    try:
        ip_address(text)
    except ValueError:
        pass
    else:
        return True
    try:
        socket.inet_aton(text)
    except OSError:
        return False
    return True


_WRITTEN = re.compile(rb"([0-9a-f.:]+)\t([A-Za-z0-9._-]+)\r?\n?")
_TORN = re.compile(rb"([0-9a-f.:]+)(\t[A-Za-z0-9._-]*\r?)?")


class OwnLines(Struct, frozen=True):
    """Recognizes nodeagent's own lines by the networks of their addresses.

    `networks` are the relay ranges and, as a /32 or /128, the relay Service's ClusterIP.
    """

    networks: tuple[IPNetwork, ...]

    def whole(self, line: bytes) -> bool:
        """Return whether `line`, with or without its end, is `address<TAB>name` with such an address."""
        match = _WRITTEN.fullmatch(line)
        return match is not None and self._holds(match[1])

    def torn(self, line: bytes) -> bool:
        """Return whether `line`, the last of a file and without newline, starts like one of nodeagent's."""
        match = _TORN.fullmatch(line)
        # Without a name, it has no meaning for anyone.
        return match is not None and (match[2] is None or self._holds(match[1]))

    def _holds(self, written: bytes) -> bool:
        try:
            address = ip_address(written.decode("ascii"))
        except ValueError:
            return False
        return any(address in network for network in self.networks)
