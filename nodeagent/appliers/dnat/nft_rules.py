"""Rules of our table as JSON, brought to one form whatever version of nft printed them. PURE.

nft leaves out a match that another part of the rule implies (`meta l4proto tcp` beside `tcp dport`, the
`meta nfproto` that an inet table puts before `ip daddr`), or prints it, according to its version; it prints a
look-up in a set as `==` or `in`; and older versions add `type_flags` to a translation. None of this changes
what the rule does, and all of it is taken away before rules are compared.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from nodeagent.appliers.dnat.nft_script import FAMILIES, map_name, pods_name
from nodeagent.model.addresses import Family

Expression = Mapping[str, object]

_PROTOCOLS: Mapping[Family, str] = {4: "ip", 6: "ip6"}


@cache
def expected_rules() -> dict[str, list[object]]:
    """Each chain's rules in order, in normal form."""
    return {
        "output": [[_dnat(family)] for family in FAMILIES],
        "prerouting": [[_from_pods(family), _dnat(family)] for family in FAMILIES],
    }


def normal_rule(expressions: Sequence[Expression]) -> object:
    """The rule without what is implied anyway; two rules of equal form do the same."""
    implied = _implied(expressions)
    normal = [_normal(expression) for expression in expressions]
    return [expression for expression in normal if expression not in implied]


def _implied(expressions: Sequence[Expression]) -> list[Expression]:
    """The matches that change nothing beside this rule's translation: TCP, and the family it is for."""
    implied = [_meta("l4proto", "tcp"), _meta("l4proto", 6)]
    for expression in expressions:
        translation = expression.get("dnat")
        family = translation.get("family") if isinstance(translation, Mapping) else None
        if family == "ip":
            implied.append(_meta("nfproto", "ipv4"))
        elif family == "ip6":
            implied.append(_meta("nfproto", "ipv6"))
    return implied


def _normal(expression: Expression) -> Expression:
    match = expression.get("match")
    if isinstance(match, Mapping) and match.get("op") == "in":
        return {"match": {**match, "op": "=="}}
    translation = expression.get("dnat")
    if isinstance(translation, Mapping):
        return {"dnat": {key: value for key, value in translation.items() if key != "type_flags"}}
    return expression


def _meta(key: str, value: object) -> Expression:
    return {"match": {"op": "==", "left": {"meta": {"key": key}}, "right": value}}


def _payload(protocol: str, field: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": field}}


def _from_pods(family: Family) -> Expression:
    left = _payload(_PROTOCOLS[family], "saddr")
    return {"match": {"op": "==", "left": left, "right": f"@{pods_name(family)}"}}


def _dnat(family: Family) -> Expression:
    protocol = _PROTOCOLS[family]
    key = {"concat": [_payload(protocol, "daddr"), _payload("tcp", "dport")]}
    return {"dnat": {"family": protocol, "addr": {"map": {"key": key, "data": f"@{map_name(family)}"}}}}
