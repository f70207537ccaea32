"""Addresses and endpoints in both families, and hostnames."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from operator import attrgetter
from typing import Generic, Literal, TypeVar

from msgspec import Struct

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
Family = Literal[4, 6]
FAMILIES: tuple[Family, Family] = (4, 6)


def sort_key(address: IPAddress) -> tuple[int, int]:
    """Sort addresses of both families: IPv4 first, then by number."""
    return (address.version, int(address))


class Endpoint(Struct, frozen=True):
    """An address with a TCP port."""

    address: IPAddress
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"

    def sort_key(self) -> tuple[int, int, int]:
        """Return a key that sorts endpoints by family, address, port."""
        return (*sort_key(self.address), self.port)


LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""One label of a hostname in lower case, as a regular expression (RFC 1123, 2.1)."""
HOSTNAME = rf"{LABEL}(\.{LABEL})*"
LONGEST_HOSTNAME = 253
_HOSTNAME = re.compile(HOSTNAME)


def canonical(host: str) -> str:
    """Return the host in lower case, without a final dot (RFC 1035, 2.3.3); itself, if it is so already."""
    name = host.lower().removesuffix(".")
    return host if name == host else name


def defect(name: str) -> str | None:
    """Why `name` (canonical) can't be a hostname in a hosts file; None if it can (RFC 1123, 2.1)."""
    if len(name) > LONGEST_HOSTNAME:
        return f"longer than {LONGEST_HOSTNAME} characters"
    if not _HOSTNAME.fullmatch(name):
        return "not a DNS name"
    if name.rpartition(".")[2].isdigit():
        return "looks like an address, not a name"
    return None


def is_wildcard(name: str) -> bool:
    """Whether the host is `*.` and a suffix: the hostnames one label below it, in the Gateway API all."""
    return name.startswith("*.")


def covering(name: str, suffixes: Iterable[str]) -> str | None:
    """Return the first of `suffixes` that `name` equals or is below, label by label; None without one."""
    ends = tuple(suffixes)
    if not name.endswith(ends):  # most names, decided without a loop
        return None
    for suffix in ends:
        if name == suffix or name.endswith(f".{suffix}"):
            return suffix
    return None


_Named = TypeVar("_Named")
_NAME = attrgetter("name")


class ByName(tuple[_Named, ...], Generic[_Named]):  # noqa: SLOT001 - of a tuple, only empty slots may be
    """Values in the order of their names; `since` has few that differ from those of which they were made."""

    _mark, _follows = object(), object()
    _difference: tuple[Sequence[_Named], Sequence[_Named]] = ((), ())

    def replaced(self, new: Mapping[str, Sequence[_Named]]) -> "ByName[_Named]":
        """Return the values with these for their names; the same object if nothing differs."""
        values, gone, come = [*self], list[_Named](), list[_Named]()
        if 4 * len(new) > len(values):  # the place of each takes longer
            gone = [value for value in self if _NAME(value) in new]
            come = [value for name in sorted(new) for value in new[name]]
            values = sorted((*(value for value in self if _NAME(value) not in new), *come), key=_NAME)
        else:
            for name in sorted(new):
                start = bisect_left(values, name, key=_NAME)
                its = slice(start, bisect_right(values, name, start, key=_NAME))
                if values[its] != [*new[name]]:
                    gone += values[its]
                    come += new[name]
                    values[its] = new[name]
        if gone == come:
            return self
        after = ByName(values)
        after._mark = object()
        if 4 * (len(gone) + len(come)) < len(values):
            after._follows, after._difference = self._mark, (gone, come)
        return after

    def since(self, before: object) -> tuple[Sequence[_Named], Sequence[_Named]] | None:
        """Return all there was, and is, of the names that differ; None if that is unknown."""
        return self._difference if getattr(before, "_mark", None) is self._follows else None
