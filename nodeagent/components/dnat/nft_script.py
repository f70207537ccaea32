"""The text of the table `inet nodeagent` and of changes to it. Pure.

Text, not JSON: nft 1.0.6 turns a map to `address . port` that is given as JSON silently into a set.

The structure is fixed, two rules per family and hook, and only the elements of maps and sets change. So a
packet costs two lookups however many load balancers there are, and a change needs no rule handles (knftables,
docs/iptables-porting.md).
"""

from collections.abc import Iterator

from nodeagent.components.dnat.state import DnatChange, comment_of
from nodeagent.model.addresses import Endpoint, Family
from nodeagent.model.desired import NO_RULES, DnatRules, Redirect

TABLE = "nodeagent"

PRIORITY = -105
"""Before kube-proxy: NF_IP_PRI_NAT_DST, nft's `dstnat`, is -100, and the first chain that sets up a
connection's translation wins (nf_nat_inet_fn() runs the chains only for a connection without one)."""

GUARD_PRIORITY = -300
"""NF_IP_PRI_RAW: a packet dropped here costs no entry of connection tracking, and a packet that will be
redirected to the relay still has the load balancer's address."""

INPUT_PRIORITY = 0
"""NF_IP_PRI_FILTER, after every translation."""

FAMILIES: tuple[Family, Family] = (4, 6)
RANGES = tuple(NO_RULES.ranges)
"""Each is an interval set for each family, pods4 and pods6 for instance; the map is lb4 or lb6."""


def script(change: DnatChange) -> str:
    """Return the transaction for `change`, as `nft -f -` takes it; empty if there is nothing to do."""
    match change.action:
        case "none" | "supersede":
            return ""
        case "delete":
            return f"delete table inet {TABLE}\n"
        case "alter":
            return _delta(change)
        case "repair":
            return _repair(change)
        case "create" | "rebuild":
            return replacement(change.desired)


def replacement(desired: DnatRules, table: str = TABLE) -> str:
    """Return the text that replaces any table of its name with the whole table, in one transaction.

    With `add` before `delete`, the deletion also succeeds without a table. A packet sees the old table or the
    new one, except for one that is between the old table's chain and the new one's at the moment of the
    commit: it has seen the new chain before it had rules, and the old one after it lost them
    (nf_hook_entries_grow() puts a hook before others of its priority). `_repair` has no such moment.
    """
    elements = [_add(_map_element(redirect), table) for redirect in desired.redirects]
    elements += [_add(element, table) for element in _ranges(desired)]
    head = f"add table inet {table}\ndelete table inet {table}\n"
    return head + _structure(table, desired.users) + "".join(elements)


def _ranges(rules: DnatRules) -> Iterator[tuple[str, str]]:
    """Yield each range, after the name of its set."""
    for name, networks in rules.ranges.items():
        yield from ((f"{name}{network.version}", str(network)) for network in networks)


def _repair(change: DnatChange) -> str:
    """Rewrite every rule, make what is missing, change only differing elements, in one transaction.

    Existing chains and maps stay: a packet reads the generation once when it enters a chain, so it sees the
    old rules or the new ones (nft_do_chain()). Stating again what exists as stated changes nothing.
    """
    return f"flush table inet {TABLE}\n" + _structure(TABLE, change.desired.users) + _delta(change)


def _structure(table: str, users: int) -> str:
    sets = "".join(
        f"\tmap lb{family} {{\n"
        f"\t\ttype ipv{family}_addr . inet_service : ipv{family}_addr . inet_service\n\t}}\n"
        + _sets_of_ranges(family)
        for family in FAMILIES
    )
    kept = "".join(f"\t\t{_kept(family)}\n" for family in FAMILIES)
    output = "".join(f"\t\t{_dnat(family)}\n" for family in FAMILIES)
    prerouting = "".join(
        f"\t\t{protocol_name(family)} saddr @pods{family} {_dnat(family)}\n" for family in FAMILIES
    )
    chains = _chain("output", output + kept) + _chain("prerouting", prerouting + kept) + _guard_chains(users)
    return f"table inet {table} {{\n{sets}{chains}}}\n"


def _chain(hook: str, rules: str) -> str:
    # The priority as a number: the name `dstnat` means another one in the output hook's text of old nft.
    return f"\tchain {hook} {{\n\t\ttype nat hook {hook} priority {PRIORITY}; policy accept;\n{rules}\t}}\n"


def _sets_of_ranges(family: Family) -> str:
    """Return the definitions of the sets of ranges.

    With `typeof`, not `type`: nft 1.0.6 crashes when it lists tables while any table of the namespace has a
    set of a single `type` that nft 1.1.3 made (observed). The maps' concatenated types do no harm.
    """
    return "".join(
        f"\tset {name}{family} {{\n\t\ttypeof {protocol_name(family)} saddr\n\t\tflags interval\n\t}}\n"
        for name in RANGES
    )


def _guard_chains(users: int) -> str:
    """Return the definitions of the chains that keep others from the relay.

    `guard` sees packets before every translation, `guard_input` after them: a NodePort, or the address of a
    Service whose EndpointSlice names a relay address, would lead there as well, and HAProxy to itself.
    `users` sees the node's own connections after their translation.
    """
    guard = "".join(f"\t\t{_guard(family)}\n" for family in FAMILIES)
    translated = "".join(f"\t\t{_guard_translated(family)}\n" for family in FAMILIES)
    return (
        f"\tchain guard {{\n\t\ttype filter hook prerouting priority {GUARD_PRIORITY}; policy accept;\n"
        f"{guard}\t}}\n"
        f"\tchain guard_input {{\n\t\ttype filter hook input priority {INPUT_PRIORITY}; policy accept;\n"
        f"{guard}{translated}\t}}\n"
        f"\tchain users {{\n\t\ttype filter hook output priority {INPUT_PRIORITY}; policy accept;\n"
        f"{''.join(_users(family, users) for family in FAMILIES if users)}\t}}\n"
    )


def _guard(family: Family) -> str:
    protocol = protocol_name(family)
    ranges = f"{protocol} daddr @guarded{family} {protocol} saddr != @admitted{family}"
    return f'iif != "lo" {ranges} drop'


def _guard_translated(family: Family) -> str:
    protocol = protocol_name(family)
    original = f"ct original {protocol} daddr"
    known = f"{original} != @guarded{family} {original} != @balancers{family}"
    return f"ct state new {protocol} daddr @guarded{family} {known} drop"


def _users(family: Family, most: int) -> str:
    new = f"{protocol_name(family)} daddr @guarded{family} meta skuid != 0 ct state new"
    return f"\t\t{new} ct count over {most} drop\n"


def _dnat(family: Family) -> str:
    protocol = protocol_name(family)
    return f"meta l4proto tcp dnat {protocol} to {protocol} daddr . tcp dport map @lb{family}"


def _kept(family: Family) -> str:
    """Return the rule that keeps what is sent to the relay from all later chains.

    A pod's hostPort (the CNI plugin portmap) and kube-proxy's NodePorts take their port of every local
    address, the relay's among them: anyone who can create a pod or a Service could answer in its place. A
    translation to the packet's own address counts as one, so no later chain makes another.
    """
    protocol = protocol_name(family)
    return f"{protocol} daddr @guarded{family} dnat {protocol} to {protocol} daddr"


def protocol_name(family: Family) -> str:
    """Return the family's keyword in nft's language."""
    return "ip" if family == 4 else "ip6"


def _delta(change: DnatChange) -> str:
    """Return deletions first.

    An added element may replace a deleted one (another value, an overlapping range).

    An element is deleted by its key; its value and comment need not be known.
    """
    gone = [_delete(_map_key(redirect)) for redirect in change.removed.redirects]
    gone += [_delete(element) for element in _ranges(change.removed)]
    new = [_add(_map_element(redirect)) for redirect in change.added.redirects]
    new += [_add(element) for element in _ranges(change.added)]
    return "".join(gone + new)


def _add(element: tuple[str, str], table: str = TABLE) -> str:
    where, text = element
    return f"add element inet {table} {where} {{ {text} }}\n"


def _delete(element: tuple[str, str]) -> str:
    where, text = element
    return f"delete element inet {TABLE} {where} {{ {text} }}\n"


def _map_key(redirect: Redirect) -> tuple[str, str]:
    return f"lb{redirect.match.address.version}", _endpoint(redirect.match)


def _map_element(redirect: Redirect) -> tuple[str, str]:
    where, key = _map_key(redirect)
    return where, f'{key} comment "{comment_of(redirect.load_balancer)}" : {_endpoint(redirect.to)}'


def _endpoint(endpoint: Endpoint) -> str:
    return f"{endpoint.address} . {endpoint.port:d}"
