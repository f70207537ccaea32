"""Rules of legacy xtables as values: their meaning, their text for iptables, their bytes in the kernel. Pure.

The kernel's bytes are those of include/uapi/linux/netfilter/x_tables.h, netfilter_ipv4/ip_tables.h and
netfilter_ipv6/ip6_tables.h, which never change. The Rule objects of python-iptables (1.2.0) are not used:
they go through libxtables, which registers DNAT for one family per process, so that the other finds none; to
read a match's parameters they replace the whole process's standard output with a pipe, where another thread
may be writing a log line; and they take twenty times as long.
"""

import struct
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, Family, IPAddress, IPNetwork

Where = IPAddress | IPNetwork
"""An address or a range; a range of one is its address, so that there is only one form."""

_TCP = 6
_MATCH = struct.Struct("@H29sB")  # struct xt_entry_match and xt_entry_target: size, name, revision
_TCP_DATA = struct.Struct("@4H4B")  # struct xt_tcp: ports from and to, option, flags, inversion
_ANY_PORT = (0, 65535)
_ENTRY_TAIL = struct.Struct("@IHH")  # nfcache, target_offset, next_offset
_COMMENT_BYTES = 256  # struct xt_comment_info
_RANGE_COMPAT = struct.Struct("@II4s4s2s2s")  # struct nf_nat_ipv4_multi_range_compat
_RANGE = struct.Struct("@I16s16s2s2s")  # struct nf_nat_range, and the beginning of nf_nat_range2
_ALIGNMENT = 8  # XT_ALIGN(): that of a u64
_NAT_FLAGS = 3  # NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED
_IPV6_PROTO = 1  # IP6T_F_PROTO: `proto` counts
_NOT_IN = 1  # IPT_INV_VIA_IN


class _Layout(Struct, frozen=True):
    """The places of the fields in a family's entry: addresses, interfaces, protocol, flags, inversion."""

    address: int
    tail: int
    head: int
    protocol: struct.Struct


_LAYOUTS: Final[dict[Family, _Layout]] = {
    4: _Layout(4, 84, 112, struct.Struct("@HBB")),
    6: _Layout(16, 136, 168, struct.Struct("@HxBB")),
}
_LO = b"lo\0".ljust(16, b"\0"), b"\xff\xff\xff".ljust(16, b"\0")
_ANYWHERE = bytes(16), bytes(16)


class XtRule(Struct, frozen=True):
    """One rule: its target, and its matches.

    `target` is a chain, a verdict or DNAT, `to` the latter's endpoint. `port` is TCP's destination port;
    `outside` means "over any interface but lo". `foreign` is set for a rule with anything that nodeagent's
    rules don't have, so that it equals none of them.
    """

    target: str
    source: Where | None = None
    destination: Where | None = None
    tcp: bool = False
    port: int | None = None
    outside: bool = False
    comment: str = ""
    to: Endpoint | None = None
    foreign: str = ""

    def __str__(self) -> str:
        """Return the rule as iptables takes it after the chain's name."""
        words = [f"-s {self.source}"] if self.source else []
        words += [f"-d {self.destination}"] if self.destination else []
        words += ["! -i lo"] if self.outside else []
        words += ["-p tcp"] if self.tcp else []
        words += [f"-m tcp --dport {self.port}"] if self.port is not None else []
        words += [f'-m comment --comment "{self.comment}"'] if self.comment else []
        words.append(f"-j {self.target}")
        words += [f"--to-destination {self.to}"] if self.to else []
        return " ".join(words)


class _ForeignError(Exception):
    """The rule has something that none of nodeagent's rules has."""


DNAT_REVISION = 2
"""Of the DNAT target in Linux 4.18 and later. iptables lists the rules of an older revision than the kernel's
newest as "[unsupported revision]", and its saved output could not be restored."""

OLD_DNAT_REVISION: Final[Mapping[Family, int]] = {4: 0, 6: 1}
"""In older kernels."""


def where(network: IPNetwork) -> Where | None:
    """Return the range as in a rule: None for all addresses."""
    if network.prefixlen == 0:
        return None
    return network.network_address if network.prefixlen == network.max_prefixlen else network


def encode(family: Family, rule: XtRule, dnat_revision: int) -> bytes:
    """Return the kernel's bytes for one of nodeagent's rules, as libiptc takes them.

    A jump names its chain as the target.
    """
    layout = _LAYOUTS[family]
    matches = b""
    if rule.port is not None:
        matches += _extension("tcp", _TCP_DATA.pack(*_ANY_PORT, rule.port, rule.port, 0, 0, 0, 0))
    if rule.comment:
        matches += _extension("comment", rule.comment.encode("ascii").ljust(_COMMENT_BYTES, b"\0"))
    target = _target(rule, dnat_revision)
    source, source_mask = _address(layout, rule.source)
    destination, destination_mask = _address(layout, rule.destination)
    incoming, incoming_mask = _LO if rule.outside else _ANYWHERE
    head = b"".join(
        (
            *(source, destination, source_mask, destination_mask),
            *(incoming, _ANYWHERE[0], incoming_mask, _ANYWHERE[1]),
            layout.protocol.pack(
                _TCP * rule.tcp, _IPV6_PROTO * (rule.tcp and family == 6), _NOT_IN * rule.outside
            ),
        )
    ).ljust(layout.tail, b"\0")
    offsets = _ENTRY_TAIL.pack(0, layout.head + len(matches), layout.head + len(matches) + len(target))
    return (head + offsets).ljust(layout.head, b"\0") + matches + target


def _target(rule: XtRule, dnat_revision: int) -> bytes:
    if rule.to is None:
        return _extension(rule.target, bytes(8))  # struct xt_standard_target: libiptc fills in the verdict
    address, port = rule.to.address.packed, rule.to.port.to_bytes(2, "big")
    if dnat_revision == 0:
        body = _RANGE_COMPAT.pack(1, _NAT_FLAGS, address, address, port, port)
    else:
        body = _RANGE.pack(_NAT_FLAGS, address, address, port, port)
    # nf_nat_range2 has a base port after that, which counts only with a flag of its own.
    return _extension(rule.target, body + bytes(2) * (dnat_revision == 2), dnat_revision)


def _extension(name: str, body: bytes, revision: int = 0) -> bytes:
    padded = body.ljust(-(-len(body) // _ALIGNMENT) * _ALIGNMENT, b"\0")
    return _MATCH.pack(_MATCH.size + len(padded), name.encode("ascii"), revision) + padded


def _address(layout: _Layout, place: Where | None) -> tuple[bytes, bytes]:
    if place is None:
        return bytes(layout.address), bytes(layout.address)
    if isinstance(place, (IPv4Network, IPv6Network)):
        return place.network_address.packed, place.netmask.packed
    return place.packed, b"\xff" * layout.address


def decode(family: Family, entry: bytes, target: str) -> XtRule:
    """Return a rule from the kernel's bytes.

    Args:
        family: Of the table.
        entry: A struct ipt_entry or ip6t_entry with its matches and target.
        target: The target's name, for a jump that of the chain.

    Returns:
        The rule; with `foreign` set if this module can't write it.
    """
    try:
        return _decode(family, entry, target)
    except (_ForeignError, struct.error) as error:
        return XtRule(target, foreign=str(error) or "unknown")


def _decode(family: Family, entry: bytes, target: str) -> XtRule:
    layout = _LAYOUTS[family]
    size = layout.address
    source, destination, source_mask, destination_mask = (entry[i * size : (i + 1) * size] for i in range(4))
    names = 4 * size
    interfaces = [entry[names + i * 16 : names + (i + 1) * 16] for i in range(4)]
    protocol, flags, inverted = layout.protocol.unpack_from(entry, names + 64)
    _, target_offset, _ = _ENTRY_TAIL.unpack_from(entry, layout.tail)
    if protocol not in (0, _TCP) or flags != (_IPV6_PROTO if family == 6 and protocol else 0):
        raise _ForeignError(f"protocol {protocol}, flags {flags}")
    port, comment = _matches(entry[layout.head : target_offset])
    return XtRule(
        target,
        _place(source, source_mask),
        _place(destination, destination_mask),
        protocol == _TCP,
        port,
        _is_outside(interfaces, inverted),
        comment,
        _translation(family, entry[target_offset:]) if target == "DNAT" else None,
    )


def _is_outside(interfaces: list[bytes], inverted: int) -> bool:
    incoming, outgoing, incoming_mask, outgoing_mask = interfaces
    if (outgoing, outgoing_mask) == _ANYWHERE:
        if (incoming, incoming_mask, inverted) == (*_LO, _NOT_IN):
            return True
        if (incoming, incoming_mask, inverted) == (*_ANYWHERE, 0):
            return False
    raise _ForeignError("interfaces or inversion")


def _place(address: bytes, mask: bytes) -> Where | None:
    length = _length(mask)
    if length == len(mask) * 8:
        return ip_address(address)
    if length == 0:
        return None
    try:
        return ip_network((address, length))
    except ValueError as error:
        raise _ForeignError(str(error)) from error


@cache
def _length(mask: bytes) -> int:
    bits = f"{int.from_bytes(mask, 'big'):0{len(mask) * 8}b}".rstrip("0")
    if "0" in bits:
        raise _ForeignError("a mask with holes")
    return len(bits)


def _matches(data: bytes) -> tuple[int | None, str]:
    """Return the port and the comment."""
    port, comment = None, ""
    offset = 0
    while offset < len(data):
        size, name, revision = _MATCH.unpack_from(data, offset)
        body = data[offset + _MATCH.size : offset + size]
        word = name.partition(b"\0")[0]
        if word == b"tcp" and revision == 0 and port is None:
            port = _port(body)
        elif word == b"comment" and revision == 0 and not comment:
            comment = body.partition(b"\0")[0].decode(errors="replace")
        else:
            raise _ForeignError(f"match {word!r}")
        offset += size
        if size < _MATCH.size:
            raise _ForeignError("a match without a size")
    return port, comment


def _port(body: bytes) -> int:
    *ports, option, mask, compared, inverted = _TCP_DATA.unpack_from(body)
    if tuple(ports[:2]) != _ANY_PORT or ports[2] != ports[3] or option or mask or compared or inverted:
        raise _ForeignError("a TCP match for more than one port")
    return int(ports[2])


def _translation(family: Family, data: bytes) -> Endpoint:
    """Return the endpoint of a DNAT target in one of three revisions (nf_nat.h: range_compat to range2)."""
    size, _, revision = _MATCH.unpack_from(data)
    body = data[_MATCH.size : size]
    if revision == 0:
        count, flags, first, last, low, high = _RANGE_COMPAT.unpack_from(body)
        address: IPv4Address | IPv6Address = IPv4Address(first)
        single = count == 1
    elif revision in (1, 2):
        flags, first, last, low, high = _RANGE.unpack_from(body)
        # A union (nf_inet_addr): an IPv4 address is its first four bytes.
        address = IPv4Address(first[:4]) if family == 4 else IPv6Address(first)
        single = True
    else:
        raise _ForeignError(f"revision {revision} of DNAT")
    if flags != _NAT_FLAGS or not single or first != last or low != high:
        raise _ForeignError("a translation to a range")
    return Endpoint(address, int.from_bytes(low, "big"))
