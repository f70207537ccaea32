"""The types of options' values: each parses its text, or says what to write instead."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import PurePosixPath
from typing import Annotated, Self

from msgspec import Meta

from nodeagent.model.addresses import HOSTNAME, LONGEST_HOSTNAME, Endpoint, IPNetwork
from nodeagent.model.desired import HEALTH

DNS_PORT = 53
PortNumber = Annotated[int, Meta(ge=1, le=65535)]


def _range(text: str, example: str, *versions: int) -> IPNetwork:
    """Return the range around a text of such a version. Raises ValueError."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        network = None
    if network is None or network.version not in versions or "%" in text:
        raise ValueError(f"{text!r} is not a range of addresses (example{example})")
    return network


def _check_host_bits(text: str, network: IPNetwork) -> None:
    """Raise ValueError, which says what to write. The last check: that must not be refused in turn."""
    if "/" in text and ip_address(text.partition("/")[0]) != network.network_address:
        raise ValueError(f"{text} has host bits set: write {network}")


class _Text(str):
    """A text that is checked when it is read."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the text. Raises ValueError, which says what to write instead."""
        value = cls(text)
        cls._check(value)
        return value

    def _check(self) -> None:
        """Raise the ValueError if it can't be used."""


class PortRange(_Text):
    """A range of ports: `30000-32767`."""

    def _check(self) -> None:
        whole = re.fullmatch(r"[0-9]{1,5}-[0-9]{1,5}", self)
        if not whole or not self.ports or self.ports.stop > 65536:
            raise ValueError(f"{self!r} is not a range of ports (example: 30000-32767)")

    @property
    def ports(self) -> range:
        """The ports in it."""
        first, _, last = self.partition("-")
        return range(int(first), int(last) + 1)


class DnsName(_Text):
    """A DNS name of one or more labels in lower case, without a wildcard or a final dot (RFC 1123)."""

    def _check(self) -> None:
        if self.startswith((".", "*.")):
            raise ValueError(f"{self!r}: write it without the leading {self[: self.index('.') + 1]!r}")
        if len(self) > LONGEST_HOSTNAME or not re.fullmatch(HOSTNAME, self):
            raise ValueError(f"{self!r} is not a DNS name in lower case (example: corp.example.com)")


class InterfaceName(_Text):
    """The name of a network interface: 1 to 15 bytes without slash or space (dev_valid_name)."""

    _end, _advice = "", ""

    def _check(self) -> None:
        if len(self) > 15 or not re.fullmatch(rf"[A-Za-z0-9_.-]+{self._end}", self) or self in {".", ".."}:
            letters = f"1 to 15 of the letters A-Z a-z 0-9 _ . -{self._advice}"
            raise ValueError(f"{self!r} is not an interface name: {letters}")


class InterfacePattern(InterfaceName):
    """The name of a network interface, or the beginning of several and `*`."""

    _end, _advice = r"\*?", "; the last one may be *, for all names that begin so"


class AbsolutePath(PurePosixPath):
    """A path that starts at the root, so that its meaning does not change with the working directory."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the path, or ValueError for a relative one or one with a control character in it."""
        path = cls(text)
        if not path.is_absolute() or any(ord(letter) < 32 for letter in text):
            raise ValueError(f"{text!r} is not an absolute path")
        return path


_THIS_HOST = IPv4Network("0.0.0.0/8")  # RFC 1122, 3.2.1.3: no host can have such an address
_METADATA = IPv4Address("169.254.169.254")


class RelayRange4(IPv4Network):
    """The range of IPv4 relay addresses: from /16 (more are never needed) to /29 (six addresses)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range. Raises ValueError."""
        network = cls(_range(text, ": 169.254.66.0/24", 4))
        if not 16 <= network.prefixlen <= 29 or network.is_loopback or network.is_multicast:
            raise ValueError(f"{text!r}: must be a range of /16 to /29, and neither loopback nor multicast")
        if network.is_reserved or network[0] in _THIS_HOST or _METADATA in network:
            raise ValueError(f"{text!r}: must have no reserved address, nor {_METADATA}, clouds' metadata")
        _check_host_bits(text, network)
        return network


class RelayRange6(IPv6Network):
    """The range of IPv6 relay addresses: from /64 to /125 (seven addresses)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range. Raises ValueError."""
        network = cls(_range(text, ": fd68:6169:7270::/112", 6))
        loops = IPv6Address("::1") in network
        if not 64 <= network.prefixlen <= 125 or loops or network.is_multicast:
            raise ValueError(f"{text!r}: must be a range of /64 to /125, and neither loopback nor multicast")
        _check_host_bits(text, network)
        return network


class AddressRange(_Text):
    """A range of addresses: `203.0.113.0/24`, `2001:db8::/32`, or one address."""

    def _check(self) -> None:
        _check_host_bits(self, _range(self, "s: 203.0.113.0/24, 192.0.2.7", 4, 6))

    @property
    def network(self) -> IPNetwork:
        """The range as a network object of its family."""
        return ip_network(self)


class PodNetwork(AddressRange):
    """A range of pod addresses: `10.244.1.0/24` or `fd00:10:244::/64`."""

    def _check(self) -> None:
        network = _range(self, "s: 10.244.1.0/24, fd00:10:244::/64", 4, 6)
        # One that is wider than any cluster's would include foreign traffic.
        if network.prefixlen < (smallest := 8 if network.version == 4 else 32):
            raise ValueError(f"{self!r} is not a range of pod addresses: must be /{smallest} or smaller")
        super()._check()


class ListenAddress(_Text):
    """Where to listen: `127.0.0.1:9467`, `[::1]:9467`, or empty for nowhere."""

    def _check(self) -> None:
        if not self:
            return
        host, _, port = self.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        try:
            address = ip_address(bare)
        except ValueError:
            address = None
        # A port is what a person types: no sign, no leading zero, no other script's digits.
        if address is None or (address.version == 6) is (bare == host) or "%" in bare:
            raise ValueError(
                f"{self!r} is not an address and port (examples: 127.0.0.1:9467, '[::1]:9467', '' for none)"
            )
        if not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
            raise ValueError(f"{self!r}: the port must be a number from 1 to 65535")

    @property
    def endpoint(self) -> Endpoint | None:
        """The address and port; None for nowhere."""
        if not self:
            return None
        host, _, port = self.rpartition(":")
        return Endpoint(ip_address(host.strip("[]")), int(port))


class TelemetryAddress(ListenAddress):
    """Where the agent listens: anywhere but on the port that the relay needs at any address."""

    def _check(self) -> None:
        super()._check()
        if self.endpoint and self.endpoint.port == HEALTH.port:
            raise ValueError(f"{self!r}: {HEALTH.port} is the relay's own (health check): choose another")


class DnsServer(_Text):
    """A DNS server: `192.0.2.53`, `2001:db8::53`, or with a port: `192.0.2.53:5353`."""

    def _check(self) -> None:
        try:
            _ = self.endpoint
        except ValueError:
            raise ValueError(
                f"{self!r} is not a DNS server's address (examples: 192.0.2.53, '192.0.2.53:5353', "
                "'[2001:db8::53]:5353')"
            ) from None

    @property
    def endpoint(self) -> Endpoint:
        """The address and port, 53 where none is given. Raises ValueError for text that was not parsed."""
        try:
            return Endpoint(ip_address(str(self)), DNS_PORT)
        except ValueError:
            endpoint = ListenAddress.parse(self).endpoint
            if endpoint is None:
                raise
            return endpoint
