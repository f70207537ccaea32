"""Addresses and endpoints, in both families."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

from msgspec import Struct

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
Family = Literal[4, 6]


def sort_key(address: IPAddress) -> tuple[int, int]:
    """Return a key that sorts addresses of both families: IPv4 first, then by number."""
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
