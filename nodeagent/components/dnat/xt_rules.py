"""Rules of legacy xtables as values: their meaning, their text, their bytes in the kernel. Pure.

The bytes are those of include/uapi/linux/netfilter/x_tables.h, netfilter_ipv4/ip_tables.h and
netfilter_ipv6/ip6_tables.h. docs/decisions/0011-iptables-backend.md says why not python-iptables' Rule.
"""

import struct
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, Family, IPNetwork

_TCP = 6
_MATCH = struct.Struct("@H29sB")  # struct xt_entry_match and xt_entry_target: size, name, revision
_TCP_DATA = struct.Struct("@4H4B")  # struct xt_tcp: ports from and to, option, flags, inversion
_ANY_PORT = (0, 65535)
_ENTRY_TAIL = struct.Struct("@IHH")  # nfcache, target_offset, next_offset
_COMMENT_BYTES = 256  # struct xt_comment_info
# struct xt_conntrack_mtinfo3, and in it the original destination, its mask, flags and states.
_CONNTRACK = struct.Struct("@32x16s16s64x18xH2xH10x")
_NO_ADDRESS = bytes(16), bytes(16)
# struct xt_owner_match_info: users from and to, what counts, what is inverted (XT_OWNER_UID); struct
# xt_connlimit_info: a mask, the limit, flags; both with their padding.
_OWNER, _CONNLIMIT = struct.Struct("@II8xBB2x"), struct.Struct("@16xII8x")
_NOT_ROOT = _OWNER.pack(0, 0, 1, 1)
_STATE, _ORIGINAL_DESTINATION = 1, 8  # XT_CONNTRACK_STATE, _ORIGDST
_NEW = 8  # XT_CONNTRACK_STATE_BIT(IP_CT_NEW)
_RANGE = struct.Struct("@I16s16s2s2sH")  # struct nf_nat_range2
_DNAT_REVISION = 2
"""The one of nf_nat_range2. iptables lists the rules of an older revision than the kernel's newest as
"[unsupported revision]", and its saved output could not be restored."""
_DATA_BYTES = {
    b"conntrack": _CONNTRACK.size,
    b"tcp": _TCP_DATA.size,
    b"comment": _COMMENT_BYTES,
    b"owner": _OWNER.size,
    b"connlimit": _CONNLIMIT.size,
    b"DNAT": _RANGE.size,
}
_ALIGNMENT = 8  # XT_ALIGN(): that of a u64
_NAT_FLAGS = 3  # NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED
_IPV6_PROTO = 1  # IP6T_F_PROTO: `proto` counts
_NOT_IN = 1  # IPT_INV_VIA_IN


_Extensions = tuple[tuple[bytes, int, bytes], ...]
"""Name, revision and data of each."""


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


class XtRule(Struct, frozen=True):
    """One rule: its target, a chain, a verdict or DNAT, and its matches.

    `port` is TCP's destination port; `interface` is the one over which the packet arrives, or with `*` at its
    end all that begin so; `outside` means "over any interface but lo", `new` a connection's first packet, and
    `original` is the connection's destination before any translation. With `users`, it applies to local users
    but root that have more connections than that together. `foreign`: the rule has anything that nodeagent's
    don't.
    """

    target: str
    source: IPNetwork | None = None
    destination: IPNetwork | None = None
    tcp: bool = False
    port: int | None = None
    outside: bool = False
    new: bool = False
    original: IPNetwork | None = None
    users: int = 0
    comment: str = ""
    to: Endpoint | None = None
    foreign: bool = False
    interface: str = ""

    def __str__(self) -> str:
        """Return the rule as iptables takes it after the chain's name."""
        words = [f"-s {self.source}"] if self.source else []
        words += [f"-d {self.destination}"] if self.destination else []
        words += ["! -i lo"] if self.outside else []
        words += [f"-i {self.interface.replace('*', '+')}"] if self.interface else []
        words += ["-p tcp"] if self.tcp else []
        words += ["-m conntrack --ctstate NEW"] if self.new else []
        words += [f"-m conntrack --ctorigdst {self.original}"] if self.original else []
        if self.users:
            words.append("-m owner ! --uid-owner 0 -m connlimit")
            words.append(f"--connlimit-above {self.users} --connlimit-mask 0 --connlimit-saddr")
        words += [f"-m tcp --dport {self.port}"] if self.port is not None else []
        words += [f'-m comment --comment "{self.comment}"'] if self.comment else []
        words.append(f"-j {self.target}")
        words += [f"--to-destination {self.to}"] if self.to else []
        return " ".join(words)


def where(network: IPNetwork) -> IPNetwork | None:
    """Return the range as in a rule: None for all addresses."""
    return network if network.prefixlen else None


def encode(family: Family, rule: XtRule) -> bytes:
    """Return the kernel's bytes for a rule, as libiptc takes them: a jump names its chain as the target."""
    layout = _LAYOUTS[family]
    matches = b""
    if rule.new:
        matches += _extension("conntrack", _CONNTRACK.pack(*_NO_ADDRESS, _STATE, _NEW), 3)
    if rule.original:
        address, mask = _address(layout, rule.original)
        # iptables writes the mask of a host in full, whatever the family.
        mask = b"\xff" * 16 if mask == b"\xff" * layout.address else mask
        matches += _extension("conntrack", _CONNTRACK.pack(address, mask, _ORIGINAL_DESTINATION, 0), 3)
    if rule.users:
        matches += _extension("owner", _NOT_ROOT, 1)
        matches += _extension("connlimit", _CONNLIMIT.pack(rule.users, 0), 1)
    if rule.port is not None:
        matches += _extension("tcp", _TCP_DATA.pack(*_ANY_PORT, rule.port, rule.port, 0, 0, 0, 0))
    if rule.comment:
        matches += _extension("comment", rule.comment.encode("ascii").ljust(_COMMENT_BYTES, b"\0"))
    if rule.to is None:
        target = _extension(rule.target, bytes(8))  # struct xt_standard_target: libiptc fills in the verdict
    else:
        address, port = rule.to.address.packed, rule.to.port.to_bytes(2, "big")
        data = _RANGE.pack(_NAT_FLAGS, address, address, port, port, 0)
        target = _extension(rule.target, data, _DNAT_REVISION)
    source, source_mask = _address(layout, rule.source)
    destination, destination_mask = _address(layout, rule.destination)
    incoming, incoming_mask = _interface("lo" if rule.outside else rule.interface)
    flags = _IPV6_PROTO * (rule.tcp and family == 6)
    head = b"".join(
        (
            *(source, destination, source_mask, destination_mask),
            *(incoming, bytes(16), incoming_mask, bytes(16)),
            layout.protocol.pack(_TCP * rule.tcp, flags, _NOT_IN * rule.outside),
        )
    ).ljust(layout.tail, b"\0")
    offsets = _ENTRY_TAIL.pack(0, layout.head + len(matches), layout.head + len(matches) + len(target))
    return (head + offsets).ljust(layout.head, b"\0") + matches + target


def _extension(name: str, body: bytes, revision: int = 0) -> bytes:
    padded = body.ljust(-(-len(body) // _ALIGNMENT) * _ALIGNMENT, b"\0")
    return _MATCH.pack(_MATCH.size + len(padded), name.encode("ascii"), revision) + padded


def _address(layout: _Layout, place: IPNetwork | None) -> tuple[bytes, bytes]:
    if place is None:
        return bytes(layout.address), bytes(layout.address)
    return place.network_address.packed, place.netmask.packed


def _interface(name: str) -> tuple[bytes, bytes]:
    """Return the name and the mask of what counts of it: for a whole name, its end does."""
    start = name.removesuffix("*").encode("ascii")
    counted = len(start) + (name == start.decode("ascii"))
    return start.ljust(16, b"\0"), (b"\xff" * counted * bool(name)).ljust(16, b"\0")


def decode(family: Family, entry: bytes, target: str) -> XtRule:
    """Return the rule that an entry's bytes mean; `foreign` if `encode` would make others of it."""
    try:
        head, extensions = _meaning(family, entry)
    except struct.error:
        return XtRule(target, foreign=True)
    return _decode(family, head, extensions, target)


@lru_cache(maxsize=4096)
def _decode(family: Family, head: bytes, extensions: _Extensions, target: str) -> XtRule:
    """Return the same from what `_meaning` returns. Mostly, a rule is one that was read before."""
    try:
        rule = _fields(family, head, extensions, target)
        if (head, extensions) == _meaning(family, encode(family, rule)):
            return rule
    except (ValueError, struct.error):
        pass
    return XtRule(target, foreign=True)


def _fields(family: Family, head: bytes, extensions: _Extensions, target: str) -> XtRule:
    """Return the fields that one of nodeagent's rules would have, whatever else the entry has."""
    layout = _LAYOUTS[family]
    size = layout.address
    source, destination, source_mask, destination_mask = (head[i * size : (i + 1) * size] for i in range(4))
    protocol, _, inverted = layout.protocol.unpack_from(head, 4 * size + 64)
    new, original, users, port, comment, to = False, None, 0, None, "", None
    for name, _, data in extensions:
        if name == b"conntrack":
            address, mask, flags, _ = _CONNTRACK.unpack(data)
            new = flags == _STATE
            original = None if new else _place(address[:size], mask[:size])
        elif name == b"connlimit":
            users = _CONNLIMIT.unpack(data)[0]
        elif name == b"tcp":
            port = _TCP_DATA.unpack(data)[2]
        elif name == b"comment":
            comment = data.partition(b"\0")[0].decode("ascii")
        elif name == b"DNAT":
            _, address, _, low, _, _ = _RANGE.unpack(data)
            # A union (nf_inet_addr): an IPv4 address is its first four bytes.
            to = Endpoint(ip_address(address[:size]), int.from_bytes(low, "big"))
    return XtRule(
        target,
        _place(source, source_mask),
        _place(destination, destination_mask),
        protocol == _TCP,
        port,
        inverted == _NOT_IN,
        new,
        original,
        users,
        comment,
        to,
        interface="" if inverted else _interface_name(head[4 * size :]),
    )


def _interface_name(interfaces: bytes) -> str:
    """Return the name of the incoming one; `encode` decides whether it is all that the bytes say."""
    name, _, mask, _ = (interfaces[i * 16 : (i + 1) * 16] for i in range(4))
    text = name.partition(b"\0")[0]
    return text.decode("ascii") + "*" * (bool(text) and mask[len(text)] == 0)


def _place(address: bytes, mask: bytes) -> IPNetwork | None:
    return where(ip_network((address, int.from_bytes(mask, "big").bit_count())))


def _meaning(family: Family, entry: bytes) -> tuple[bytes, _Extensions]:
    """Return an entry's head without what libiptc notes in it; its matches, and a target that translates."""
    layout = _LAYOUTS[family]
    _, target, end = _ENTRY_TAIL.unpack_from(entry, layout.tail)
    extensions = []
    offset = layout.head
    while offset < end:
        size, padded, revision = _MATCH.unpack_from(entry, offset)
        name = padded.partition(b"\0")[0]  # iptables leaves anything after it
        if offset < target or name == b"DNAT":
            data = entry[offset + _MATCH.size : offset + size]
            extensions.append((name, revision, data[: _DATA_BYTES.get(name)]))
        offset += max(size, _MATCH.size)
    return entry[: layout.tail], tuple(extensions)
