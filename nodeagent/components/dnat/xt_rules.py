"""Rules of legacy xtables: as values, as text, and as the kernel has them, which is compared. Pure.

The bytes are those of include/uapi/linux/netfilter/x_tables.h, netfilter_ipv4/ip_tables.h and
netfilter_ipv6/ip6_tables.h. docs/decisions/0011-iptables-backend.md says why not python-iptables' Rule.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final, Literal

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

TableName = Literal["mangle", "nat"]
TABLES: Final[tuple[TableName, ...]] = ("mangle", "nat")
"""In the order in which they are changed: the guard exists before anything points at what it guards."""

PREFIX = "NODEAGENT-"
"""The beginning of the names of all nodeagent's chains, and of no others."""

PROGRAMS: Mapping[Family, str] = {4: "iptables", 6: "ip6tables"}
"""The names of a family's tables for a person."""


class _Layout(Struct, frozen=True):
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
    but root that have more connections than that together. A range of all addresses is no match.
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
    interface: str = ""


def redirecting(match: Endpoint, to: Endpoint, comment: str) -> XtRule:
    """Return the rule that sends connections to `match` to another endpoint."""
    destination = ip_network((match.address.packed, match.address.max_prefixlen))
    return XtRule("DNAT", destination=destination, tcp=True, port=match.port, comment=comment, to=to)


_Extension = tuple[bytes, int, bytes]
"""Name, revision and data of a match, or of a target that translates."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule as the kernel has it; `rule` is None if it was read."""

    target: str
    head: bytes
    extensions: tuple[_Extension, ...] = ()
    rule: XtRule | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """What iptables takes after the chain's name; empty for a rule that was read."""
        rule = self.rule
        if rule is None:
            return ""
        words = [f"-s {rule.source}"] if rule.source and rule.source.prefixlen else []
        words += [f"-d {rule.destination}"] if rule.destination and rule.destination.prefixlen else []
        words += ["! -i lo"] if rule.outside else []
        words += [f"-i {rule.interface.replace('*', '+')}"] if rule.interface else []
        words += ["-p tcp"] if rule.tcp else []
        words += (option.format(rule) for option, _ in _extensions(rule))
        words += [] if rule.to else [f"-j {rule.target}"]
        return " ".join(words)

    @property
    def data(self) -> dict[bytes, bytes]:
        return {name: data for name, _, data in self.extensions}


@lru_cache(maxsize=8192)
def entry_of(family: Family, rule: XtRule) -> Entry:
    """Return the entry that the kernel makes of a rule."""
    layout = _LAYOUTS[family]
    places = (rule.source, rule.destination)
    addresses = (place.network_address.packed if place else bytes(layout.address) for place in places)
    masks = (place.netmask.packed if place else bytes(layout.address) for place in places)
    # The mask of an interface says what counts of its name: of a whole name, its end does.
    interface = b"lo\0" if rule.outside else f"{rule.interface}\0".encode("ascii") if rule.interface else b""
    interface = interface.removesuffix(b"*\0")
    head = b"".join(
        (
            *(*addresses, *masks),
            *(interface.ljust(16, b"\0"), bytes(16), (b"\xff" * len(interface)).ljust(16, b"\0"), bytes(16)),
            layout.protocol.pack(
                _TCP * rule.tcp, _IPV6_PROTO * (rule.tcp and family == 6), _NOT_IN * rule.outside
            ),
        )
    ).ljust(layout.tail, b"\0")
    return Entry(rule.target, head, tuple([data for _, data in _extensions(rule)]), rule)


def _extensions(rule: XtRule) -> Iterator[tuple[str, _Extension]]:
    """Yield iptables' words (`{0}` is the rule) and what the kernel has, for each match and for DNAT."""
    if rule.new:
        data = _CONNTRACK.pack(bytes(16), bytes(16), _STATE, _NEW)
        yield "-m conntrack --ctstate NEW", (b"conntrack", 3, data)
    if rule.original and rule.original.prefixlen:
        host = rule.original.prefixlen == rule.original.max_prefixlen
        # iptables writes the mask of a host in full, whatever the family.
        mask = b"\xff" * 16 if host else rule.original.netmask.packed
        data = _CONNTRACK.pack(rule.original.network_address.packed, mask, _ORIGINAL_DESTINATION, 0)
        yield "-m conntrack --ctorigdst {0.original}", (b"conntrack", 3, data)
    if rule.users:
        yield "-m owner ! --uid-owner 0", (b"owner", 1, _NOT_ROOT)
        words = "-m connlimit --connlimit-above {0.users} --connlimit-mask 0 --connlimit-saddr"
        yield words, (b"connlimit", 1, _CONNLIMIT.pack(rule.users, 0))
    if rule.port is not None:
        data = _TCP_DATA.pack(*_ANY_PORT, rule.port, rule.port, 0, 0, 0, 0)
        yield "-m tcp --dport {0.port}", (b"tcp", 0, data)
    if rule.comment:
        data = rule.comment.encode("ascii").ljust(_COMMENT_BYTES, b"\0")
        yield '-m comment --comment "{0.comment}"', (b"comment", 0, data)
    if rule.to:
        address, port = rule.to.address.packed, rule.to.port.to_bytes(2, "big")
        data = _RANGE.pack(_NAT_FLAGS, address, address, port, port, 0)
        yield "-j DNAT --to-destination {0.to}", (b"DNAT", _DNAT_REVISION, data)


def packed(family: Family, entry: Entry) -> bytes:
    """Return an entry's bytes as libiptc takes them: a jump names its chain as the target."""
    # struct xt_standard_target: libiptc fills in the verdict.
    target = () if entry.target == "DNAT" else ((entry.target.encode("ascii"), 0, bytes(8)),)
    parts = []
    for name, revision, data in (*entry.extensions, *target):
        padded = data.ljust(-(-len(data) // _ALIGNMENT) * _ALIGNMENT, b"\0")
        parts.append(_MATCH.pack(_MATCH.size + len(padded), name, revision) + padded)
    end = _LAYOUTS[family].head + sum(map(len, parts))
    tail = _ENTRY_TAIL.pack(0, end - len(parts[-1]), end)
    return (entry.head + tail).ljust(_LAYOUTS[family].head, b"\0") + b"".join(parts)


def unpacked(family: Family, raw: bytes, target: str) -> Entry:
    """Return the entry of these bytes; one that can't be understood equals none of nodeagent's."""
    layout = _LAYOUTS[family]
    extensions = []
    try:
        _, target_at, end = _ENTRY_TAIL.unpack_from(raw, layout.tail)
        offset = layout.head
        while offset < end:
            size, name, revision = _MATCH.unpack_from(raw, offset)
            name = name.partition(b"\0")[0]  # iptables leaves anything after it
            if offset < target_at or name == b"DNAT":
                data = raw[offset + _MATCH.size : offset + size]
                extensions.append((name, revision, data[: _DATA_BYTES.get(name)]))
            offset += max(size, _MATCH.size)
    except struct.error:
        return Entry(target, raw)
    return Entry(target, raw[: layout.tail], tuple(extensions))


def networks_of(family: Family, entry: Entry) -> list[IPNetwork]:
    """Return source, destination and original destination; empty if nodeagent writes no such range."""
    size = _LAYOUTS[family].address
    source, destination, *masks = (entry.head[place * size : (place + 1) * size] for place in range(4))
    original, mask, _, _ = _CONNTRACK.unpack(entry.data.get(b"conntrack", bytes(_CONNTRACK.size)))
    pairs = zip((source, destination, original[:size]), (*masks, mask[:size]), strict=True)
    return [ip_network((address, int.from_bytes(mask, "big").bit_count())) for address, mask in pairs]


@lru_cache(maxsize=8192)
def translation(family: Family, entry: Entry) -> tuple[Endpoint, Endpoint, str] | None:
    """Return what `redirecting` was given for this entry; None for any other."""
    data = entry.data
    try:
        match = Endpoint(networks_of(family, entry)[1].network_address, _TCP_DATA.unpack(data[b"tcp"])[2])
        _, address, _, port, _, _ = _RANGE.unpack(data[b"DNAT"])
        # A union (nf_inet_addr): an IPv4 address is its first four bytes.
        to = Endpoint(ip_address(address[: _LAYOUTS[family].address]), int.from_bytes(port, "big"))
        comment = data.get(b"comment", b"").partition(b"\0")[0].decode("ascii")
    except (KeyError, ValueError, struct.error):
        return None
    return (match, to, comment) if entry_of(family, redirecting(match, to, comment)) == entry else None


@dataclass(frozen=True, slots=True)
class Table:
    """nodeagent's part of one table: its chains, and with their places (from 1) the rules that lead there."""

    chains: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    jumps: Mapping[str, tuple[tuple[int, Entry], ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or self.jumps)


Key = tuple[Family, TableName]
Tables = Mapping[Key, Table]
