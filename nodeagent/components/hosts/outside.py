"""What the user's own lines of a hosts file say: the names they set, and what hairpin-proxy left. Pure."""

import io
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from msgspec import Struct

from nodeagent.model.facts import UserHostsLine
from nodeagent.node_files import hosts_fields

HAIRPIN_PROXY_MARK = b"# Added by hairpin-proxy"
"""How each line that hairpin-proxy wrote ends (its main.rb: COMMENT_LINE_SUFFIX)."""


class LegacyLine(Struct, frozen=True):
    """A line that hairpin-proxy wrote: one address with all names after it."""

    line_number: int
    address: str
    names: tuple[str, ...]


def legacy_lines(user: bytes, line_numbers: Sequence[int]) -> tuple[LegacyLine, ...]:
    """Find the lines of hairpin-proxy among the user's; `line_numbers` are their numbers in the file."""
    return tuple(
        LegacyLine(number, *hosts_fields(line))
        for number, line in zip(line_numbers, _lines(user), strict=True)
        if _is_legacy(line)
    )


def without_legacy_lines(user: bytes) -> bytes:
    """Give the user's bytes without the lines of hairpin-proxy."""
    return b"".join(line for line in _lines(user) if not _is_legacy(line))


def names_set(user: bytes, line_numbers: Sequence[int]) -> dict[str, UserHostsLine]:
    """Map each name, in lower case, to the first of the user's lines that sets it.

    A line of the user's own goes before one that hairpin-proxy wrote, so that adopting the latter never
    hides the former. A line whose first field is no address sets nothing, as for the C libraries. Names are
    compared as glibc does, without regard to case.
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
    # A comment of the user's that merely ends so is no line of hairpin-proxy: that always holds an address.
    return line.strip().endswith(HAIRPIN_PROXY_MARK) and _is_address(hosts_fields(line)[0])


def _is_address(text: str) -> bool:
    """Tell whether a C library takes `text` for an address.

    musl takes whatever inet_aton does ("127.1"), glibc only full addresses; a line that serves one of them
    is the user's decision all the same.
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
