"""What stands in the legacy tables -> DnatState. PURE."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Literal

from nodeagent.appliers.dnat.comments import owner_of
from nodeagent.appliers.dnat.interface import DnatDesired, DnatState
from nodeagent.appliers.dnat.xt_layout import GUARD, PREROUTING, TREE, Key, Layout, layout
from nodeagent.appliers.dnat.xt_rules import XtRule
from nodeagent.model.addresses import Endpoint, Family, IPNetwork
from nodeagent.model.desired import Redirect

PROGRAMS: Mapping[Family, str] = {4: "iptables", 6: "ip6tables"}
"""What a person calls the tables of a family."""

_EVERYTHING: Mapping[Family, IPNetwork] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


@dataclass(frozen=True, slots=True)
class Standing:
    """Our part of one table as it stands: our chains, and the rules elsewhere that lead to them.

    `jumps` tells of the kernel's own chains each rule that leads into ours, with its place (0 is the top).
    """

    chains: Mapping[str, tuple[XtRule, ...]] = field(default_factory=dict)
    jumps: Mapping[str, tuple[tuple[int, XtRule], ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or any(self.jumps.values()))


Tables = Mapping[Key, Standing]


def state_of(tables: Tables) -> DnatState:
    """The state that the tables tell.

    Whatever is not as `layout` makes it for the very entries that stand is damage; none of it ever obstructs,
    since every chain can be written anew where it is.
    """
    redirects: dict[Endpoint, Redirect] = {}
    pods: list[IPNetwork] = []
    guarded: list[IPNetwork] = []
    admitted: list[IPNetwork] = []
    for (family, _), standing in tables.items():
        for redirect in _redirects(standing):
            redirects.setdefault(redirect.match, redirect)
        jumps = (rule for jumps in standing.jumps.values() for _, rule in jumps)
        pods += _ranges(family, standing.chains.get(PREROUTING, ()), TREE, "source")
        admitted += _ranges(family, standing.chains.get(GUARD, ()), "RETURN", "source")
        guarded += _ranges(family, jumps, GUARD, "destination")
    told = DnatDesired(
        tuple(sorted(redirects.values(), key=lambda redirect: redirect.match.sort_key())),
        _ordered(pods),
        _ordered(guarded),
        _ordered(admitted),
    )
    damage = tuple(_damage(tables, layout(told)))
    return DnatState(
        redirects=told.redirects,
        pod_cidrs=told.pod_cidrs,
        guarded=told.guarded,
        admitted=told.admitted,
        present=any(tables.values()),
        damage=tuple(text for text, _ in damage),
        displaced=bool(damage) and all(displaced for _, displaced in damage),
    )


def _redirects(standing: Standing) -> Iterator[Redirect]:
    for rules in standing.chains.values():
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
    for (family, table), standing in tables.items():
        wanted = expected[family, table]
        where = f"of the {PROGRAMS[family]} table {table}"
        for chain in sorted({*standing.chains, *wanted.chains}):
            if chain not in standing.chains:
                yield f"chain {chain} {where} is missing", False
            elif chain not in wanted.chains:
                yield f"chain {chain} {where} leads nowhere", False
            elif standing.chains[chain] != wanted.chains[chain]:
                yield f"the rules of chain {chain} {where} are altered", False
        for chain in sorted({*standing.jumps, *wanted.jumps}):
            jumps = standing.jumps.get(chain, ())
            if tuple(rule for _, rule in jumps) != wanted.jumps.get(chain, ()):
                yield f"the jump to our chain in {chain} {where} is missing or altered", False
            elif [place for place, _ in jumps] != list(range(len(jumps))):
                yield f"another rule stands before the jump to our chain in {chain} {where}", True
