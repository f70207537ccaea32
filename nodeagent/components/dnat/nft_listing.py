"""What `nft -j list table inet nodeagent` prints -> DnatState. Pure.

The format is libnftables-json(5). Versions of nft print the same rule differently, so no rule is compared by
its expressions. The kernel numbers a table's chains, sets and rules from 1 in the order in which they are
made (nf_tables_alloc_handle()), and never gives a number twice: what was removed and added again has another
one. So a table is as one transaction made it if it has the names and comments of nodeagent's structure and
the numbers from 1 on. The comments have the structure's version. Only `nft replace rule` keeps the number:
such a rule is known by its comment, unless the program gave it nodeagent's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

import msgspec
from msgspec import Raw, Struct

from nodeagent.components.dnat.nft_script import CHAINS, FAMILIES, RANGES, structure, users_limit
from nodeagent.components.dnat.state import DnatState, in_order, owner_of
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.typed_values import from_json


class _Listing(Struct):
    nftables: list[dict[str, Raw]]


class _Item(Struct):
    """A table, chain, map, set or rule: of each, what can change while its number stays."""

    handle: int = 0
    name: str = ""
    flags: str | list[str] = []
    policy: str = "accept"
    size: int = 0
    chain: str = ""
    comment: str = ""
    elem: Raw = Raw(b"[]")


@dataclass(slots=True)
class _Found:
    """What has been read so far of one listing; `rules` are each chain's comments."""

    handles: set[int] = field(default_factory=set)
    rules: dict[str, list[str]] = field(default_factory=dict)
    maps: set[str] = field(default_factory=set)
    sets: set[str] = field(default_factory=set)
    redirects: list[Redirect] = field(default_factory=list)
    ranges: dict[str, list[IPNetwork]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


def state_of(listing: bytes) -> DnatState:
    """Return the state that a listing of nodeagent's table shows.

    Args:
        listing: The standard output of `nft -j list table inet nodeagent`.

    Returns:
        The entries and ranges in order, and every way in which the structure is not nodeagent's.

    Raises:
        ApplyError: this is not a listing of nft.
    """
    found = _Found()
    try:
        for item in from_json(listing, _Listing).nftables:
            for kind, body in item.items():
                if kind != "metainfo":  # nft's version, on which nothing here depends
                    _read(found, kind, from_json(body, _Item))
    except msgspec.DecodeError as error:
        raise ApplyError(
            f"DNAT: nft's listing of the table could not be understood ({error}); nothing was changed. "
            "Compare the output of `nft -j list table inet nodeagent` with libnftables-json(5)."
        ) from error
    users = users_limit(found.rules.get("users", ()))
    return DnatState(
        DnatRules(
            tuple(sorted(found.redirects, key=lambda redirect: redirect.match.sort_key())),
            **{
                name: in_order(one for family in FAMILIES for one in found.ranges.get(f"{name}{family}", ()))
                for name in RANGES
            },
            users=users,
        ),
        present=True,
        damage=(*found.damage, *_differences(found, users)),
    )


def _read(found: _Found, kind: str, item: _Item) -> None:
    if kind == "table":
        if item.flags:
            found.damage.append(f"the table has flags ({item.flags})")
        return
    found.handles.add(item.handle)
    match kind:
        case "chain":
            found.rules.setdefault(item.name, [])
            if item.policy != "accept":
                found.damage.append(f"chain {item.name} has the policy {item.policy}")
        case "rule":
            found.rules.setdefault(item.chain, []).append(item.comment)
        case "map" | "set":
            (found.maps if kind == "map" else found.sets).add(item.name)
            if item.size:
                found.damage.append(f"{item.name} has room for {item.size} elements only")
            try:
                _read_elements(found, kind, item)
            except (msgspec.ValidationError, ValueError) as error:
                found.damage.append(f"{item.name} has an element that can't be nodeagent's ({error})")
        case _:
            found.damage.append(f"a {kind} that is not nodeagent's")


def _read_elements(found: _Found, kind: str, item: _Item) -> None:
    if kind == "map":
        found.redirects += [
            Redirect(_endpoint(key), _endpoint(value), owner_of(_comment(key)))
            for key, value in from_json(item.elem, list[tuple[object, object]])
        ]
    else:
        found.ranges[item.name] = [_network(element) for element in from_json(item.elem, list[object])]


def _differences(found: _Found, users: int) -> Iterator[str]:
    """Yield how the structure differs from nodeagent's, for a person."""
    wanted = structure(users)
    for what, names, expected in (
        ("chain", found.rules.keys(), CHAINS.keys()),
        ("map", found.maps, {*wanted.maps}),
        ("set", found.sets, {*wanted.sets}),
    ):
        yield from (f"{what} {name} is missing" for name in sorted(expected - names))
        yield from (f"a {what} {name} that is not nodeagent's" for name in sorted(names - expected))
    altered = [chain for chain in CHAINS if tuple(found.rules.get(chain, ())) != wanted.rules[chain]]
    yield from (f"the rules of chain {chain} are altered" for chain in altered if chain in found.rules)
    number = len(CHAINS) + len(wanted.maps) + len(wanted.sets) + sum(map(len, wanted.rules.values()))
    if not altered and found.handles != set(range(1, number + 1)):
        yield "a chain, set or rule was replaced"


def _comment(element: object) -> str:
    match element:
        case {"elem": {"comment": str(comment)}}:
            return comment
        case _:
            return ""


def _endpoint(element: object) -> Endpoint:
    match element:
        case {"elem": {"val": bare}}:  # as an element is that has a comment
            return _endpoint(bare)
        case {"concat": [str(address), int(port)]}:
            return Endpoint(ip_address(address), port)
        case _:
            raise ValueError("no address with a port")


def _network(element: object) -> IPNetwork:
    match element:
        case {"elem": {"val": bare}}:
            return _network(bare)
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return ip_network(f"{address}/{length}")
        case str(address):
            return ip_network(address)
        case _:
            raise ValueError("neither an address nor a prefix")
