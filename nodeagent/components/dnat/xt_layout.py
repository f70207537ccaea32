"""Which chains and rules stand for what is desired, in each legacy table. PURE.

nat: OUTPUT and PREROUTING jump to our chains, which lead into one tree of chains for both. A chain of the
tree holds at most sixteen rules: one chain a prefix, split by the next four bits of the load balancer's
address while more than sixteen entries share it. So the first packet of a connection (nat sees no other)
walks some dozens of rules among 5,000 entries, and a delta writes a chain or two of sixteen rules.

mangle: PREROUTING jumps to the guard. Not raw, the other table before nat: kubelet keeps a chain of its own
in mangle, nat and filter of every node (KUBE-KUBELET-CANARY), while raw is a module that few nodes have
loaded. Not filter's INPUT: a rule of another program that accepts there ends the table, and firewalls and
network plugins insist on its top.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import groupby
from typing import Final, Literal

from nodeagent.components.dnat.comments import comment_of
from nodeagent.components.dnat.xt_rules import XtRule, where
from nodeagent.model.addresses import Family, IPAddress, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect

FAMILIES: Final[tuple[Family, ...]] = (4, 6)
TableName = Literal["mangle", "nat"]
TABLES: Final[tuple[TableName, ...]] = ("mangle", "nat")
"""In the order in which they are changed: the guard stands before what it guards is pointed at."""

PREFIX = "NODEAGENT-"
"""Every chain of ours begins so, and no other."""

OUTPUT, PREROUTING, TREE, GUARD = (f"{PREFIX}{name}" for name in ("OUTPUT", "PREROUTING", "LB", "GUARD"))

_MOST_RULES = 16
_STEP_BITS = 4
_HASH_LETTERS = 16  # 80 bits; with the prefix 26 of the 28 characters that a chain's name may have


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Our part of one table: our chains, and the rules that begin the kernel's own chains."""

    chains: Mapping[str, tuple[XtRule, ...]] = field(default_factory=dict)
    jumps: Mapping[str, tuple[XtRule, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or self.jumps)


Key = tuple[Family, TableName]
Layout = Mapping[Key, TableLayout]


def layout(desired: DnatRules) -> Layout:
    """Every table's part; an empty part for a table in which nothing of ours shall stand.

    Args:
        desired: As `delta.normalised` returns it.
    """
    made: dict[Key, TableLayout] = {}
    for family in FAMILIES:
        made[family, "mangle"] = _guard(desired, family)
        made[family, "nat"] = _nat(desired, family)
    return made


def tree_chain(network: IPNetwork) -> str:
    """The name of the chain for one prefix of load balancers: a hash, since an IPv6 prefix is too long."""
    digest = hashlib.sha256(str(network).encode("ascii")).digest()
    return PREFIX + base64.b32encode(digest).decode("ascii")[:_HASH_LETTERS]


def _guard(desired: DnatRules, family: Family) -> TableLayout:
    guarded = [network for network in desired.guarded if network.version == family]
    if not guarded:
        return TableLayout()
    admitted = [network for network in desired.admitted if network.version == family]
    rules = (*(XtRule("RETURN", source=where(network)) for network in admitted), XtRule("DROP"))
    jumps = tuple(XtRule(GUARD, destination=where(network), outside=True) for network in guarded)
    return TableLayout({GUARD: rules}, {"PREROUTING": jumps})


def _nat(desired: DnatRules, family: Family) -> TableLayout:
    redirects = [redirect for redirect in desired.redirects if redirect.match.address.version == family]
    if not redirects:
        return TableLayout()
    pods = [network for network in desired.pods if network.version == family]
    chains: dict[str, tuple[XtRule, ...]] = {
        OUTPUT: (XtRule(TREE, tcp=True),),
        PREROUTING: tuple(XtRule(TREE, source=where(network), tcp=True) for network in pods),
    }
    _plant(chains, TREE, sorted(redirects, key=lambda redirect: redirect.match.sort_key()))
    jumps = {"OUTPUT": (XtRule(OUTPUT),), "PREROUTING": (XtRule(PREROUTING),)}
    return TableLayout(chains, jumps)


def _plant(chains: dict[str, tuple[XtRule, ...]], name: str, redirects: Sequence[Redirect]) -> None:
    """The chain `name` for these entries, in order, and all chains below it."""
    first, last = redirects[0].match.address, redirects[-1].match.address
    if len(redirects) <= _MOST_RULES or first == last:
        chains[name] = tuple(_entry(redirect) for redirect in redirects)
        return
    # Aligned, so that an entry that comes or goes elsewhere moves no border here.
    length = (_common_bits(first, last) // _STEP_BITS + 1) * _STEP_BITS
    rest = first.max_prefixlen - length
    rules: list[XtRule] = []
    for bits, below in groupby(redirects, key=lambda one: int(one.match.address) >> rest):
        part = list(below)
        if len(part) == 1:
            rules.append(_entry(part[0]))
            continue
        # As bytes: a small number would be taken for an IPv4 address.
        prefix = ip_network(((bits << rest).to_bytes(len(first.packed), "big"), length))
        child = tree_chain(prefix)
        rules.append(XtRule(child, destination=where(prefix), tcp=True))
        _plant(chains, child, part)
    chains[name] = tuple(rules)


def _entry(redirect: Redirect) -> XtRule:
    return XtRule(
        "DNAT",
        destination=redirect.match.address,
        tcp=True,
        port=redirect.match.port,
        comment=comment_of(redirect.load_balancer),
        to=redirect.to,
    )


def _common_bits(one: IPAddress, other: IPAddress) -> int:
    return one.max_prefixlen - (int(one) ^ int(other)).bit_length()
