"""Rules of our table as JSON, brought to one form whatever version of nft printed them. PURE.

nft leaves out a match that another part of the rule implies (`meta l4proto tcp` beside `tcp dport`, the
`meta nfproto` that an inet table puts before `ip daddr`), or prints it, according to its version; it prints a
look-up in a set as `==` or `in`; and older versions add `type_flags` to a translation. None of this changes
what the rule does, and all of it is taken away before rules are compared.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from nodeagent.components.dnat.nft_script import FAMILIES, admitted_name, guarded_name, map_name, pods_name
from nodeagent.model.addresses import Family

Expression = Mapping[str, object]

_PROTOCOLS: Mapping[Family, str] = {4: "ip", 6: "ip6"}


@cache
def expected_rules() -> dict[str, list[object]]:
    """Each chain's rules in order, in normal form."""
    return {
        "output": [[_dnat(family)] for family in FAMILIES],
        "prerouting": [[_from_pods(family), _dnat(family)] for family in FAMILIES],
        "guard": [_guard(family) for family in FAMILIES],
    }


def normal_rule(expressions: Sequence[Expression]) -> object:
    """The rule without what is implied anyway; two rules of equal form do the same."""
    implied = _implied(expressions)
    normal = [_normal(expression) for expression in expressions]
    return [expression for expression in normal if expression not in implied]


def _implied(expressions: Sequence[Expression]) -> list[Expression]:
    """The matches that change nothing beside this rule's others: TCP beside a port, and the family."""
    implied: list[Expression] = []
    for expression in expressions:
        translation = expression.get("dnat")
        if isinstance(translation, Mapping):
            implied += [_meta("l4proto", "tcp"), _meta("l4proto", 6)]
        if (protocol := _family_word(expression)) is not None:
            implied.append(_meta("nfproto", "ipv4" if protocol == "ip" else "ipv6"))
    return implied


def _family_word(expression: Expression) -> object:
    """`ip` or `ip6`, where an expression works on that family's packets alone."""
    translation, match = expression.get("dnat"), expression.get("match")
    if isinstance(translation, Mapping):
        return translation.get("family")
    left = match.get("left") if isinstance(match, Mapping) else None
    payload = left.get("payload") if isinstance(left, Mapping) else None
    protocol = payload.get("protocol") if isinstance(payload, Mapping) else None
    return protocol if protocol in _PROTOCOLS.values() else None


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
    return _in_set("==", _payload(_PROTOCOLS[family], "saddr"), pods_name(family))


def _guard(family: Family) -> list[Expression]:
    protocol = _PROTOCOLS[family]
    return [
        {"match": {"op": "!=", "left": {"meta": {"key": "iif"}}, "right": "lo"}},
        _in_set("==", _payload(protocol, "daddr"), guarded_name(family)),
        _in_set("!=", _payload(protocol, "saddr"), admitted_name(family)),
        {"drop": None},
    ]


def _in_set(op: str, left: Expression, name: str) -> Expression:
    return {"match": {"op": op, "left": left, "right": f"@{name}"}}


def _dnat(family: Family) -> Expression:
    protocol = _PROTOCOLS[family]
    key = {"concat": [_payload(protocol, "daddr"), _payload("tcp", "dport")]}
    return {"dnat": {"family": protocol, "addr": {"map": {"key": key, "data": f"@{map_name(family)}"}}}}
