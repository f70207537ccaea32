"""The text of the table `inet nodeagent` and of changes to it. Pure.

Text, not JSON: nft 1.0.6 turns a map to `address . port` that is given as JSON silently into a set.

The structure is fixed, two rules per family and hook, and only the elements of maps and sets change. So a
packet costs two lookups however many load balancers there are, and a change needs no rule handles (knftables,
docs/iptables-porting.md).

`hold` makes the table for the moment in which one backend's rules are removed and the other's are added. It
redirects nothing, and holds back the first packet (SYN) of every connection that is to be redirected: TCP
sends it again after a second, and by then the other backend's rules are there. So no connection is rejected,
although two backends never redirect at once. The held addresses expire by themselves: if the agent dies just
then, the node continues after a few seconds, and the next pass repairs the table.
"""

from collections.abc import Callable, Iterator

from nodeagent.components.dnat.state import DnatChange, comment_of
from nodeagent.model.addresses import Endpoint, Family, IPNetwork
from nodeagent.model.desired import DnatRules, Redirect

TABLE = "nodeagent"

PRIORITY = -105
"""Before kube-proxy: NF_IP_PRI_NAT_DST, nft's `dstnat`, is -100, and the first chain that sets up a
connection's translation wins (nf_nat_inet_fn() runs the chains only for a connection without one)."""

GUARD_PRIORITY = -300
"""NF_IP_PRI_RAW: a packet dropped here costs no entry of connection tracking, and a packet that will be
redirected to the relay still has the load balancer's address."""

FAMILIES: tuple[Family, Family] = (4, 6)


def map_name(family: Family) -> str:
    """Return the map from a load balancer's endpoint to the relay's."""
    return f"lb{family}"


def pods_name(family: Family) -> str:
    """Return the set of the pods' ranges."""
    return f"pods{family}"


def guarded_name(family: Family) -> str:
    """Return the set of the relay ranges that are guarded."""
    return f"guarded{family}"


def admitted_name(family: Family) -> str:
    """Return the set of the ranges that can reach guarded ones."""
    return f"admitted{family}"


def range_sets(family: Family) -> tuple[str, str, str]:
    """Return all sets of ranges; every one is an interval set."""
    return pods_name(family), guarded_name(family), admitted_name(family)


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


def removal() -> str:
    """Return the text that removes the table, or nothing if there is none."""
    return f"add table inet {TABLE}\ndelete table inet {TABLE}\n"


def replacement(desired: DnatRules, table: str = TABLE) -> str:
    """Return the text that replaces any table of its name with the whole table, in one transaction.

    With `add` before `delete`, the deletion also succeeds without a table. A packet sees the old table or the
    new one, except for one that is between the old table's chain and the new one's at the moment of the
    commit: it has seen the new chain before it had rules, and the old one after it lost them
    (nf_hook_entries_grow() puts a hook before others of its priority). `_repair` has no such moment.
    """
    elements = [_add(_map_element(redirect), table) for redirect in desired.redirects]
    head = f"add table inet {table}\ndelete table inet {table}\n"
    return head + _structure(table) + "".join(elements) + add_ranges(desired, table)


def add_ranges(rules: DnatRules, table: str = TABLE) -> str:
    """Return the text that fills the sets of ranges."""
    return "".join(_add(_range(name, network), table) for name, network in _ranges(rules))


def _ranges(rules: DnatRules) -> Iterator[tuple[Callable[[Family], str], IPNetwork]]:
    """Yield each range with the function that returns its set's name."""
    filled = ((pods_name, rules.pods), (guarded_name, rules.guarded), (admitted_name, rules.admitted))
    return ((name, network) for name, networks in filled for network in networks)


def _repair(change: DnatChange) -> str:
    """Rewrite every rule, make what is missing, change only differing elements, in one transaction.

    Existing chains and maps stay: a packet reads the generation once when it enters a chain, so it sees the
    old rules or the new ones (nft_do_chain()). Stating again what exists as stated changes nothing.
    """
    return f"flush table inet {TABLE}\n" + _structure(TABLE) + _delta(change)


def _structure(table: str) -> str:
    sets = "".join(
        f"\tmap {map_name(family)} {{\n"
        f"\t\ttype ipv{family}_addr . inet_service : ipv{family}_addr . inet_service\n\t}}\n"
        + sets_of_ranges(family)
        for family in FAMILIES
    )
    kept = "".join(f"\t\t{_kept(family)}\n" for family in FAMILIES)
    output = "".join(f"\t\t{_dnat(family)}\n" for family in FAMILIES)
    prerouting = "".join(
        f"\t\t{protocol_name(family)} saddr @{pods_name(family)} {_dnat(family)}\n" for family in FAMILIES
    )
    chains = _chain("output", output + kept) + _chain("prerouting", prerouting + kept) + guard_chain()
    return f"table inet {table} {{\n{sets}{chains}}}\n"


def _chain(hook: str, rules: str) -> str:
    # The priority as a number: the name `dstnat` means another one in the output hook's text of old nft.
    return f"\tchain {hook} {{\n\t\ttype nat hook {hook} priority {PRIORITY}; policy accept;\n{rules}\t}}\n"


def sets_of_ranges(family: Family) -> str:
    """Return the definitions of the sets of ranges.

    With `typeof`, not `type`: nft 1.0.6 crashes when it lists tables while any table of the namespace has a
    set of a single `type` that nft 1.1.3 made (observed). The maps' concatenated types do no harm.
    """
    return "".join(
        f"\tset {name} {{\n\t\ttypeof {protocol_name(family)} saddr\n\t\tflags interval\n\t}}\n"
        for name in range_sets(family)
    )


def guard_chain() -> str:
    """Return the definition of the chain that keeps other hosts from the relay."""
    rules = "".join(f"\t\t{_guard(family)}\n" for family in FAMILIES)
    head = f"type filter hook prerouting priority {GUARD_PRIORITY}; policy accept;"
    return f"\tchain guard {{\n\t\t{head}\n{rules}\t}}\n"


def _guard(family: Family) -> str:
    protocol = protocol_name(family)
    ranges = f"{protocol} daddr @{guarded_name(family)} {protocol} saddr != @{admitted_name(family)}"
    return f'iif != "lo" {ranges} drop'


def _dnat(family: Family) -> str:
    protocol = protocol_name(family)
    return f"meta l4proto tcp dnat {protocol} to {protocol} daddr . tcp dport map @{map_name(family)}"


def _kept(family: Family) -> str:
    """Return the rule that keeps what is sent to the relay from all later chains.

    A pod's hostPort (the CNI plugin portmap) and kube-proxy's NodePorts take their port of every local
    address, the relay's among them: anyone who can create a pod or a Service could answer in its place. A
    translation to the packet's own address counts as one, so no later chain makes another.
    """
    protocol = protocol_name(family)
    return f"{protocol} daddr @{guarded_name(family)} dnat {protocol} to {protocol} daddr"


def protocol_name(family: Family) -> str:
    """Return the family's keyword in nft's language."""
    return "ip" if family == 4 else "ip6"


def _delta(change: DnatChange) -> str:
    """Return deletions first.

    An added element may replace a deleted one (another value, an overlapping range).

    An element is deleted by its key; its value and comment need not be known.
    """
    gone = [_delete(_map_key(redirect)) for redirect in change.removed.redirects]
    gone += [_delete(_range(name, network)) for name, network in _ranges(change.removed)]
    new = [_add(_map_element(redirect)) for redirect in change.added.redirects]
    new += [_add(_range(name, network)) for name, network in _ranges(change.added)]
    return "".join(gone + new)


def _add(element: tuple[str, str], table: str = TABLE) -> str:
    where, text = element
    return f"add element inet {table} {where} {{ {text} }}\n"


def _delete(element: tuple[str, str]) -> str:
    where, text = element
    return f"delete element inet {TABLE} {where} {{ {text} }}\n"


def _map_key(redirect: Redirect) -> tuple[str, str]:
    return map_name(redirect.match.address.version), _endpoint(redirect.match)


def _map_element(redirect: Redirect) -> tuple[str, str]:
    where, key = _map_key(redirect)
    return where, f'{key} comment "{comment_of(redirect.load_balancer)}" : {_endpoint(redirect.to)}'


def _range(name: Callable[[Family], str], network: IPNetwork) -> tuple[str, str]:
    return name(network.version), str(network)


def _endpoint(endpoint: Endpoint) -> str:
    return f"{endpoint.address} . {endpoint.port:d}"


HOLD_SECONDS = 5
"""Many times the duration of the change, and less than the time after which a person or a probe gives up."""

_HOLD_PRIORITY = -150  # NF_IP_PRI_MANGLE: before every translation, nodeagent's and kube-proxy's


def hold(desired: DnatRules) -> str:
    """Return the text that replaces any table of its name with the holding table, in one transaction.

    Args:
        desired: The rules that will follow, as `state.normalised` returns them. Their guard is active
            meanwhile.
    """
    sets = "".join(_held_set(family) + sets_of_ranges(family) for family in FAMILIES)
    chains = (
        _hold_chain("output", from_pods=False) + _hold_chain("prerouting", from_pods=True) + guard_chain()
    )
    elements = "".join(
        f"add element inet {TABLE} {_held(redirect.match.address.version)} "
        f"{{ {redirect.match.address} . {redirect.match.port} timeout {HOLD_SECONDS}s }}\n"
        for redirect in desired.redirects
    )
    head = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
    return head + f"table inet {TABLE} {{\n{sets}{chains}}}\n" + elements + add_ranges(desired)


def _held(family: Family) -> str:
    return f"held{family}"


def _held_set(family: Family) -> str:
    return f"\tset {_held(family)} {{\n\t\ttype ipv{family}_addr . inet_service\n\t\tflags timeout\n\t}}\n"


def _hold_chain(hook: str, *, from_pods: bool) -> str:
    rules = "".join(_hold_rule(family, from_pods=from_pods) for family in FAMILIES)
    head = f"type filter hook {hook} priority {_HOLD_PRIORITY}; policy accept;"
    return f"\tchain hold_{hook} {{\n\t\t{head}\n{rules}\t}}\n"


def _hold_rule(family: Family, *, from_pods: bool) -> str:
    protocol = protocol_name(family)
    source = f"{protocol} saddr @{pods_name(family)} " if from_pods else ""
    return f"\t\ttcp flags & (syn | ack) == syn {source}{protocol} daddr . tcp dport @{_held(family)} drop\n"
