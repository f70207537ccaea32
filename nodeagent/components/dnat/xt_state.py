"""The legacy tables as read -> the actual state. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Literal

from nodeagent.components.dnat.change import DnatState
from nodeagent.components.dnat.comments import owner_of
from nodeagent.components.dnat.xt_layout import FAMILIES, GUARD, PREROUTING, TABLES, TREE, Key, Layout, layout
from nodeagent.components.dnat.xt_rules import XtRule
from nodeagent.model.addresses import Endpoint, Family, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect

PROGRAMS: Mapping[Family, str] = {4: "iptables", 6: "ip6tables"}
"""What a person calls the tables of a family."""

_EVERYTHING: Mapping[Family, IPNetwork] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


@dataclass(frozen=True, slots=True)
class TableState:
    """Our part of one table: our chains, and the rules elsewhere that lead to them.

    `jumps` has for the kernel's own chains each rule that leads into ours, with its place (1 is the top).
    """

    chains: Mapping[str, tuple[XtRule, ...]] = field(default_factory=dict)
    jumps: Mapping[str, tuple[tuple[int, XtRule], ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or any(self.jumps.values()))


Tables = Mapping[Key, TableState]
ABSENT: Tables = {(family, table): TableState() for family in FAMILIES for table in TABLES}
"""Nothing of ours in any table."""


@dataclass(frozen=True, slots=True)
class XtState(DnatState):
    """The actual state with the tables it was read from."""

    tables: Tables = field(default_factory=lambda: ABSENT, repr=False)


def state_of(tables: Tables) -> XtState:
    """Return the state that the tables are in.

    Whatever is not as `layout` makes it for the very entries that stand is damage; none of it ever obstructs,
    since every chain can be written anew where it is.
    """
    redirects: dict[Endpoint, Redirect] = {}
    pods: list[IPNetwork] = []
    guarded: list[IPNetwork] = []
    admitted: list[IPNetwork] = []
    for (family, _), state in tables.items():
        for redirect in _redirects(state):
            redirects.setdefault(redirect.match, redirect)
        jumps = (rule for jumps in state.jumps.values() for _, rule in jumps)
        pods += _ranges(family, state.chains.get(PREROUTING, ()), TREE, "source")
        admitted += _ranges(family, state.chains.get(GUARD, ()), "RETURN", "source")
        guarded += _ranges(family, jumps, GUARD, "destination")
    rules = DnatRules(
        tuple(sorted(redirects.values(), key=lambda redirect: redirect.match.sort_key())),
        _ordered(pods),
        _ordered(guarded),
        _ordered(admitted),
    )
    damage = tuple(_damage(tables, layout(rules)))
    return XtState(
        rules,
        present=any(tables.values()),
        damage=tuple(text for text, _ in damage),
        displaced=bool(damage) and all(displaced for _, displaced in damage),
        tables=tables,
    )


def _redirects(state: TableState) -> Iterator[Redirect]:
    for rules in state.chains.values():
        for rule in rules:
            address = rule.destination
            if rule.to and rule.port and isinstance(address, (IPv4Address, IPv6Address)):
                yield Redirect(Endpoint(address, rule.port), rule.to, owner_of(rule.comment))


def _ranges(
    family: Family, rules: Iterable[XtRule], target: str, end: Literal["source", "destination"]
) -> list[IPNetwork]:
    """The ranges that the rules to this target name; a rule that names none holds for all addresses."""
    named = (getattr(rule, end) for rule in rules if rule.target == target and not rule.foreign)
    return [_EVERYTHING[family] if place is None else ip_network(place) for place in named]


def _ordered(networks: list[IPNetwork]) -> tuple[IPNetwork, ...]:
    return tuple(
        sorted(set(networks), key=lambda one: (one.version, int(one.network_address), one.prefixlen))
    )


def _damage(tables: Tables, expected: Layout) -> Iterator[tuple[str, bool]]:
    """Each damage, and whether it is no more than others' rules before our jumps."""
    for (family, table), state in tables.items():
        wanted = expected[family, table]
        where = f"of the {PROGRAMS[family]} table {table}"
        for chain in sorted({*state.chains, *wanted.chains}):
            if chain not in state.chains:
                yield f"chain {chain} {where} is missing", False
            elif chain not in wanted.chains:
                yield f"chain {chain} {where} leads nowhere", False
            elif state.chains[chain] != wanted.chains[chain]:
                yield f"the rules of chain {chain} {where} are altered", False
        for chain in sorted({*state.jumps, *wanted.jumps}):
            jumps = state.jumps.get(chain, ())
            if tuple(rule for _, rule in jumps) != wanted.jumps.get(chain, ()):
                yield f"the jump to nodeagent's chain in {chain} {where} is missing or altered", False
            elif [place for place, _ in jumps] != list(range(1, len(jumps) + 1)):
                yield f"another rule is before the jump to nodeagent's chain in {chain} {where}", True
