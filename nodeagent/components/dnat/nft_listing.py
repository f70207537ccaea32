"""What `nft -j list table inet nodeagent` prints -> DnatState. Pure.

The format is libnftables-json(5). Versions of nft print the same rule differently, so rules are compared in
a normal form, and of sets and chains only what changes their effect. nft leaves out a match that another part
of the rule implies (`meta l4proto tcp` next to `tcp dport`, the `meta nfproto` that an inet table puts before
`ip daddr`), or prints it, depending on its version; it prints a lookup in a set as `==` or `in`; and older
versions add `type_flags` to a translation. The normal form leaves all of this out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network

import msgspec
from msgspec import Raw, Struct

from nodeagent.components.dnat.nft_script import CHAINS, FAMILIES, RANGES, protocol_name
from nodeagent.components.dnat.state import DnatState, in_order, owner_of
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.typed_values import from_json


class _Listing(Struct):
    nftables: list[dict[str, Raw]]


# nodeagent's maps and sets: types of the keys and of a map's values, flags.
_SETS: dict[str, tuple[str, str, list[str]]] = {
    **{f"map lb{one}": (f"ipv{one}_addr . inet_service",) * 2 + ([],) for one in FAMILIES},
    **{f"set {name}{one}": (f"ipv{one}_addr", "", ["interval"]) for one in FAMILIES for name in RANGES},
}


class _Table(Struct):
    flags: str | list[str] = []


class _Chain(Struct):
    name: str
    type: str = ""
    hook: str = ""
    prio: int | None = None
    policy: str = ""


class _Set(Struct):
    """A map or set; `map` is the type of a map's values."""

    name: str
    type: object = ""
    map: object = ""
    flags: str | list[str] = []
    size: int | None = None
    elem: Raw = Raw(b"[]")


class _Rule(Struct):
    chain: str
    expr: list[dict[str, object]] = []


@dataclass(slots=True)
class _Gathered:
    """What has been read so far of one listing.

    `lacking` can be completed; what is `in_the_way` is removed only with the whole table.
    """

    redirects: list[Redirect] = field(default_factory=list)
    ranges: dict[str, list[IPNetwork]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    rules: dict[str, list[object]] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    in_the_way: list[str] = field(default_factory=list)


def state_of(listing: bytes) -> DnatState:
    """Return the state that a listing of nodeagent's table shows.

    Args:
        listing: The standard output of `nft -j list table inet nodeagent`.

    Returns:
        The entries and ranges in order, and every way in which the structure is not nodeagent's.

    Raises:
        ApplyError: this is not a listing of nft.
    """
    gathered = _Gathered()
    try:
        for item in from_json(listing, _Listing).nftables:
            for kind, body in item.items():
                _gather(gathered, kind, body)
    except msgspec.DecodeError as error:
        raise ApplyError(
            f"DNAT: nft's listing of the table could not be understood ({error}); nothing was changed. "
            "Compare the output of `nft -j list table inet nodeagent` with libnftables-json(5)."
        ) from error
    _check_whole(gathered)
    return DnatState(
        DnatRules(
            tuple(sorted(gathered.redirects, key=lambda redirect: redirect.match.sort_key())),
            **{
                name: in_order(
                    one for family in FAMILIES for one in gathered.ranges.get(f"{name}{family}", ())
                )
                for name in RANGES
            },
            users=_users(gathered),
        ),
        present=True,
        damage=(*gathered.in_the_way, *gathered.lacking),
        obstructed=bool(gathered.in_the_way),
    )


def _users(gathered: _Gathered) -> int:
    """Return the limit of the first rule for users; 0 without one, or with another rule."""
    match gathered.rules.get("users"):
        case [[*_, {"ct count": {"val": int(most)}}, {"drop": None}], *_]:
            return most
        case _:
            return 0


def _gather(gathered: _Gathered, kind: str, body: Raw) -> None:
    match kind:
        case "metainfo":  # nft's version, on which nothing here depends
            pass
        case "table":
            if flags := _words(from_json(body, _Table).flags):
                gathered.in_the_way.append(f"the table has flags ({', '.join(flags)})")
        case "chain":
            _read_chain(gathered, from_json(body, _Chain))
        case "map" | "set":
            _read_set(gathered, kind, from_json(body, _Set))
        case "rule":
            rule = from_json(body, _Rule)
            gathered.rules.setdefault(rule.chain, []).append(normal_rule(rule.expr))
        case _:
            gathered.in_the_way.append(f"a {kind} that is not nodeagent's")


def _read_chain(gathered: _Gathered, chain: _Chain) -> None:
    if chain.name not in CHAINS:
        gathered.in_the_way.append(f"a chain {chain.name} that is not nodeagent's")
        return
    gathered.seen.add(f"chain {chain.name}")
    kind, hook, priority = CHAINS[chain.name]
    if chain.prio != priority:
        gathered.in_the_way.append(f"chain {chain.name} has priority {chain.prio}, not {priority}")
    if (chain.type, chain.hook, chain.policy) != (kind, hook, "accept"):
        gathered.in_the_way.append(
            f"chain {chain.name} is altered ({chain.type} {chain.hook} {chain.policy})"
        )


def _read_set(gathered: _Gathered, kind: str, table: _Set) -> None:
    """Note the map or set and its elements, and as damage if it or an element can't be nodeagent's."""
    title = f"{kind} {table.name}"
    if title not in _SETS:
        gathered.in_the_way.append(f"a {title} that is not nodeagent's")
        return
    gathered.seen.add(title)
    found = (_joined(table.type), _joined(table.map), _words(table.flags))
    if found != _SETS[title] or table.size is not None:
        gathered.in_the_way.append(f"{title} has another type")
        return
    try:
        if kind == "map":
            gathered.redirects += [
                Redirect(_endpoint(key), _endpoint(value), owner_of(_comment(key)))
                for key, value in from_json(table.elem, list[tuple[object, object]])
            ]
        else:
            elements = from_json(table.elem, list[object])
            gathered.ranges[table.name] = [_network(element) for element in elements]
    except (msgspec.ValidationError, ValueError) as error:
        gathered.in_the_way.append(f"{table.name} has an element that can't be nodeagent's ({error})")


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


def _joined(datatype: object) -> str:
    """Return a data type as text.

    Versions print a concatenation as a list or as `a . b`, and 1.1 prints the definition of a set (`typeof`).
    """
    if isinstance(datatype, dict):
        return _ADDRESS_TYPES.get(msgspec.json.encode(datatype), "another expression")
    return " . ".join(str(part) for part in datatype) if isinstance(datatype, list) else str(datatype)


_ADDRESS_TYPES = {
    msgspec.json.encode(
        {"typeof": {"payload": {"protocol": protocol_name(family), "field": "saddr"}}}
    ): f"ipv{family}_addr"
    for family in FAMILIES
}


def _words(value: str | list[str]) -> list[str]:
    """Return the flags: newer versions print a single one without a list around it."""
    return sorted([value] if isinstance(value, str) else value)


def _check_whole(gathered: _Gathered) -> None:
    """Note what is missing, and every chain whose rules are not exactly nodeagent's in order."""
    wanted = [*(f"chain {name}" for name in CHAINS), *_SETS]
    gathered.lacking += [f"{name} is missing" for name in wanted if name not in gathered.seen]
    for chain, rules in expected_rules(_users(gathered)).items():
        if f"chain {chain}" in gathered.seen and gathered.rules.get(chain, []) != rules:
            gathered.lacking.append(f"the rules of chain {chain} are altered")


Expression = Mapping[str, object]


@cache
def expected_rules(users: int) -> dict[str, list[object]]:
    """Return each chain's rules in order, in normal form.

    Args:
        users: the limit for local users; 0 for none.
    """
    rules: dict[str, list[object]] = {chain: [] for chain in CHAINS}
    kept: list[object] = []
    translated: list[object] = []
    for family in FAMILIES:
        protocol = protocol_name(family)
        source, destination = _payload(protocol, "saddr"), _payload(protocol, "daddr")
        key = {"concat": [destination, _payload("tcp", "dport")]}
        mapped = {"map": {"key": key, "data": f"@lb{family}"}}
        to_guarded = _match("==", destination, f"@guarded{family}")
        dnat = {"dnat": {"family": protocol, "addr": mapped}}
        rules["output"].append([dnat])
        rules["prerouting"].append([_match("==", source, f"@pods{family}"), dnat])
        kept.append([to_guarded, {"dnat": {"family": protocol, "addr": destination}}])
        others = _match("!=", source, f"@admitted{family}")
        guard = [_match("!=", {"meta": {"key": "iif"}}, "lo"), to_guarded, others, {"drop": None}]
        rules["guard"].append(guard)
        rules["guard_input"].append(guard)
        original = {"ct": {"key": f"{protocol} daddr", "dir": "original"}}
        known = (_match("!=", original, f"@{name}{family}") for name in ("guarded", "balancers"))
        new = _match("==", {"ct": {"key": "state"}}, "new")
        translated.append([new, to_guarded, *known, {"drop": None}])
        not_root = _match("!=", {"meta": {"key": "skuid"}}, 0)
        count = {"ct count": {"val": users, "inv": True}}
        if users:
            rules["users"].append([to_guarded, not_root, new, count, {"drop": None}])
    rules["output"] += kept
    rules["prerouting"] += kept
    rules["guard_input"] += translated
    return rules


def normal_rule(expressions: Sequence[Expression]) -> object:
    """Return the rule without the matches that its others imply; two rules of equal form do the same."""
    text = msgspec.json.encode(expressions)
    implied = [_match("==", {"meta": {"key": "nfproto"}}, "ipv6" if b'"ip6"' in text else "ipv4")]
    if b'"dnat"' in text:
        implied += [_match("==", {"meta": {"key": "l4proto"}}, tcp) for tcp in ("tcp", 6)]
    normal = [_normal(expression) for expression in expressions]
    return [expression for expression in normal if expression not in implied]


def _normal(expression: Expression) -> Expression:
    match = expression.get("match")
    if isinstance(match, Mapping) and match.get("op") == "in":
        return {"match": {**match, "op": "=="}}
    translation = expression.get("dnat")
    if isinstance(translation, Mapping):
        return {"dnat": {key: value for key, value in translation.items() if key != "type_flags"}}
    return expression


def _match(op: str, left: Expression, right: object) -> Expression:
    return {"match": {"op": op, "left": left, "right": right}}


def _payload(protocol: str, field: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": field}}
