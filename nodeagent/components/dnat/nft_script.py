"""The text of the table `inet nodeagent` and of changes to it. Pure.

Text, not JSON: nft 1.0.6 turns a map to `address . port` that is given as JSON silently into a set.

The structure is fixed, two rules per family and hook, and only the elements of maps and sets change. So a
packet costs two lookups however many load balancers there are, and a change needs no rule handles (knftables,
docs/iptables-porting.md). Whatever else differs, the whole table is replaced.
"""

import hashlib
from collections.abc import Iterator

from nodeagent.components.dnat.state import DnatChange, comment_of
from nodeagent.model.addresses import FAMILIES, Endpoint, IPNetwork
from nodeagent.model.desired import LOOPBACK, NO_RULES, PROBED_USERS, DnatRules

TABLE = "nodeagent"

CHAINS = {
    # Before kube-proxy: NF_IP_PRI_NAT_DST, nft's `dstnat`, is -100, and the first chain that sets up a
    # connection's translation wins (nf_nat_inet_fn() runs the chains only for a connection without one).
    "output": ("nat", "output", -105),
    "prerouting": ("nat", "prerouting", -105),
    # NF_IP_PRI_RAW: a packet dropped here costs no entry of connection tracking, and a packet that will be
    # redirected to the relay still has the load balancer's address.
    "guard": ("filter", "prerouting", -300),
    # NF_IP_PRI_FILTER, after every translation.
    "guard_input": ("filter", "input", 0),
    "users": ("filter", "output", 0),
}
"""Type, hook and priority of each; all have the policy `accept`."""

DIGEST = "digest"
"""A chain without a hook, so that no packet sees it. The comment of its only rule is `mark`."""


def script(change: DnatChange) -> str:
    """Return the transaction, as `nft -f -` takes it; empty if there is nothing to do."""
    match change.action:
        case "none":
            return ""
        case "delete":
            return f"delete table inet {TABLE}\n"
        case "alter":
            return _delta(change)
        case "create" | "repair":
            return replacement(change.desired)


def replacement(desired: DnatRules) -> str:
    """Return the text that replaces any table of its name with the whole table, in one transaction.

    With `add` before `delete`, the deletion also succeeds without a table. A new connection's packet at the
    moment of the commit may see chains without rules, or sets without ranges (observed on Linux 6.18: with
    2,000 new connections a second, two in a hundred commits let one of a pod's pass).
    """
    head = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
    return head + structure(desired) + "".join(_additions(desired))


def _ranges(rules: DnatRules) -> dict[str, tuple[IPNetwork, ...]]:
    """Return the ranges by the first part of their sets' names, pods4 and pods6 for instance."""
    return {
        "pods": rules.pods,
        "guarded": rules.guarded,
        "admitted": rules.admitted,
        "balancers": rules.balancers,
    }


RANGES = tuple(_ranges(NO_RULES))
"""Each is an interval set for each family; the map is lb4 or lb6."""


def structure(desired: DnatRules) -> str:
    """Return the definition of the whole table without elements: it depends on the options alone.

    `guard` sees packets before every translation, `guard_input` after them: a NodePort, or the address of a
    Service whose EndpointSlice names a relay address, would lead there as well, and HAProxy to itself.
    `users` sees the node's own connections after their translation.

    The last rules of `output` and `prerouting` keep what is sent to the relay from all later chains. A pod's
    hostPort (the CNI plugin portmap) and kube-proxy's NodePorts take their port of every local address:
    anyone who can create a pod or a Service could answer in the relay's place. A translation to the packet's
    own address counts as one, so no later chain makes another.

    The sets of ranges have `typeof`: nft 1.0.6 crashes when it lists tables while any table of the namespace
    has a set of a single `type` that nft 1.1.3 made (observed).
    """
    lines: list[str] = []
    rules: dict[str, list[tuple[str, str]]] = {chain: [] for chain in CHAINS}
    kept: list[tuple[str, str]] = []
    translated: list[tuple[str, str]] = []
    for family in FAMILIES:
        ip, endpoint = "ip" if family == 4 else "ip6", f"ipv{family}_addr . inet_service"
        lines += [f"map lb{family} {{", f"\ttype {endpoint} : {endpoint}", "}"]
        for name in RANGES:
            lines += [f"set {name}{family} {{", f"\ttypeof {ip} saddr", "\tflags interval", "}"]
        dnat = f"meta l4proto tcp dnat {ip} to {ip} daddr . tcp dport map @lb{family}"
        rules["output"].append((dnat, "load balancer to relay"))
        for arriving in [f'iifname "{name}" ' for name in desired.interfaces] or [""]:
            of_pods = f"{arriving}{ip} saddr @pods{family} {dnat}"
            rules["prerouting"].append((of_pods, "load balancer to relay"))
        to_guarded = f"{ip} daddr @guarded{family}"
        already = "to the relay already: to itself, so no later chain translates it"
        kept.append((f"{to_guarded} dnat {ip} to {ip} daddr", already))
        guard = f'iif != "lo" {to_guarded} {ip} saddr != @admitted{family} drop'
        rules["guard"].append((guard, "this node and its pods only"))
        rules["guard_input"].append((guard, "this node and its pods only"))
        known = " ".join(f"ct original {ip} daddr != @{name}{family}" for name in ("guarded", "balancers"))
        led = "led to the relay by another translation"
        translated.append((f"ct state new {to_guarded} {known} drop", led))
        if desired.users:
            limit = f"{to_guarded} meta skuid != 0 ct state new ct count over {desired.users} drop"
            rules["users"].append((limit, "connections of each local user"))
            for port in desired.probed:
                probed = f"{ip} daddr {LOOPBACK[family]} tcp dport {port} meta skuid != 0 ct state new"
                keep_out = f"{probed} ct count over {PROBED_USERS} drop"
                rules["users"].append((keep_out, "a place for the kubelet's probes"))
    rules["output"] += kept
    rules["prerouting"] += kept
    rules["guard_input"] += translated
    for chain, (kind, hook, priority) in CHAINS.items():
        # The priority as a number: the name `dstnat` means another one in the output hook's text of old nft.
        head = f"\ttype {kind} hook {hook} priority {priority}; policy accept;"
        texts = (f'\t{rule} comment "{comment}"' for rule, comment in rules[chain])
        lines += [f"chain {chain} {{", head, *texts, "}"]
    return "\n\t".join([f"table inet {TABLE} {{", *lines, f"chain {DIGEST} {{", "}"]) + "\n}\n"


def mark(desired: DnatRules, listed: str) -> str:
    """Return the comment of a table made for `desired`; `listed` is the digest of its structure as listed."""
    rendered = hashlib.sha256(structure(desired).encode("ascii")).hexdigest()[:8]
    return f"rendered {rendered}, listed {listed}"


def marking(desired: DnatRules, listed: str) -> str:
    """Return the transaction that writes `mark` into a table that was just made."""
    return f'add rule inet {TABLE} {DIGEST} return comment "{mark(desired, listed)}"\n'


def _delta(change: DnatChange) -> str:
    """Return deletions first: an added element may replace one (another value, an overlapping range)."""
    keys = [(f"lb{one.match.address.version}", _endpoint(one.match)) for one in change.removed.redirects]
    gone = (
        f"delete element inet {TABLE} {where} {{ {key} }}\n"
        for where, key in (*keys, *_elements(change.removed))
    )
    return "".join((*gone, *_additions(change.added)))


def _additions(rules: DnatRules) -> Iterator[str]:
    for one in rules.redirects:
        element = f'{_endpoint(one.match)} comment "{comment_of(one.load_balancer)}" : {_endpoint(one.to)}'
        yield f"add element inet {TABLE} lb{one.match.address.version} {{ {element} }}\n"
    for where, element in _elements(rules):
        yield f"add element inet {TABLE} {where} {{ {element} }}\n"


def _elements(rules: DnatRules) -> Iterator[tuple[str, str]]:
    """Yield each range, after the name of its set."""
    for name, networks in _ranges(rules).items():
        yield from ((f"{name}{network.version}", str(network)) for network in networks)


def _endpoint(endpoint: Endpoint) -> str:
    return f"{endpoint.address} . {endpoint.port:d}"
