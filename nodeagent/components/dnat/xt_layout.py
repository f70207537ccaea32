"""The legacy tables: chains and rules as desired, and the state that was read. Pure.

nat: OUTPUT and PREROUTING jump to nodeagent's chains, which lead into one chain of all entries for both. The
first packet of a TCP connection walks it, as it walks kube-proxy's chain of all Services.

mangle: PREROUTING jumps to the guard, and so does INPUT, which sees packets after every translation; a new
connection that another program's translation leads to the relay is dropped there, by its original
destination. Not raw: kubelet keeps a chain of its own in mangle, nat and filter of every node
(KUBE-KUBELET-CANARY), while few have loaded the module for raw. Not filter's INPUT: a rule of another program
that accepts there ends the table, and firewalls and network plugins insist on its top.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Final, Literal

from nodeagent.components.dnat.state import DnatState, comment_of, ordered, owner_of
from nodeagent.components.dnat.xt_rules import XtRule, where
from nodeagent.model.addresses import FAMILIES, Endpoint, Family, IPNetwork
from nodeagent.model.desired import LOOPBACK, PROBED_USERS, DnatRules, Redirect

TableName = Literal["mangle", "nat"]
TABLES: Final[tuple[TableName, ...]] = ("mangle", "nat")
"""In the order in which they are changed: the guard exists before anything points at what it guards."""

PREFIX = "NODEAGENT-"
"""The beginning of the names of all nodeagent's chains, and of no others."""

OUTPUT, PREROUTING, ENTRIES, GUARD, TRANSLATED, USERS, PROBED = (
    f"{PREFIX}{name}" for name in ("OUTPUT", "PREROUTING", "LB", "GUARD", "TRANSLATED", "USERS", "PROBED-")
)


@dataclass(frozen=True, slots=True)
class Table:
    """nodeagent's part of one table: its chains, and with their places (from 1) the rules that lead there."""

    chains: Mapping[str, tuple[XtRule, ...]] = field(default_factory=dict)
    jumps: Mapping[str, tuple[tuple[int, XtRule], ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or self.jumps)


Key = tuple[Family, TableName]
Tables = Mapping[Key, Table]


def layout(desired: DnatRules) -> Tables:
    """Return every table's part, empty for a table that needs none; `desired` is `normalised`."""
    makers = {"mangle": _guard, "nat": _nat}
    return {(family, table): makers[table](desired, family) for family in FAMILIES for table in TABLES}


def _guard(desired: DnatRules, family: Family) -> Table:
    guarded = [network for network in desired.guarded if network.version == family]
    if not guarded:
        return Table()
    admitted = [network for network in desired.admitted if network.version == family]
    rules = (*(XtRule("RETURN", source=where(network)) for network in admitted), XtRule("DROP"))
    known = (*guarded, *(network for network in desired.balancers if network.version == family))
    translated = (*(XtRule("RETURN", original=where(network)) for network in known), XtRule("DROP"))
    jumps = tuple(XtRule(GUARD, destination=where(network), outside=True) for network in guarded)
    arriving = (XtRule(TRANSLATED, destination=where(network), new=True) for network in guarded)
    chains = {GUARD: rules, TRANSLATED: translated}
    places = {"PREROUTING": jumps, "INPUT": (*jumps, *arriving)}
    if desired.users:
        chains[USERS] = (XtRule("DROP", users=desired.users),)
        limited = [XtRule(USERS, destination=where(one), new=True) for one in guarded]
        for port in desired.probed:
            chains[f"{PROBED}{port}"] = (XtRule("DROP", users=PROBED_USERS),)
            probes = XtRule(f"{PROBED}{port}", destination=LOOPBACK[family], tcp=True, port=port, new=True)
            limited.append(probes)
        places["POSTROUTING"] = tuple(limited)
    return _at_the_top(chains, places)


def _nat(desired: DnatRules, family: Family) -> Table:
    redirects = [redirect for redirect in desired.redirects if redirect.match.address.version == family]
    # A pod's hostPort and kube-proxy's NodePorts take their port of every local address; here, these rules
    # of the same table are not reached by what is sent to the relay. Without redirects, hosts lines lead
    # there: load balancers that are served by their hostnames.
    guarded = [network for network in desired.guarded if network.version == family]
    kept = tuple(XtRule("ACCEPT", destination=where(network)) for network in guarded)
    chains: dict[str, tuple[XtRule, ...]] = {}
    if redirects:
        pods = [network for network in desired.pods if network.version == family]
        chains[OUTPUT] = (XtRule(ENTRIES, tcp=True), *kept)
        of_pods = (
            XtRule(ENTRIES, source=where(network), tcp=True, interface=name)
            for network in pods
            for name in desired.interfaces or ("",)
        )
        chains[PREROUTING] = (*of_pods, *kept)
        chains[ENTRIES] = tuple(
            XtRule(
                "DNAT",
                destination=ip_network(one.match.address),
                tcp=True,
                port=one.match.port,
                comment=comment_of(one.load_balancer),
                to=one.to,
            )
            for one in redirects
        )
    elif kept:
        chains = {OUTPUT: kept, PREROUTING: kept}
    else:
        return Table()
    jumps = {"OUTPUT": (XtRule(OUTPUT),), "PREROUTING": (XtRule(PREROUTING),)}
    return _at_the_top(chains, jumps)


def _at_the_top(chains: Mapping[str, tuple[XtRule, ...]], jumps: Mapping[str, tuple[XtRule, ...]]) -> Table:
    return Table(chains, {chain: tuple(enumerate(rules, 1)) for chain, rules in jumps.items()})


PROGRAMS: Mapping[Family, str] = {4: "iptables", 6: "ip6tables"}
"""The names of a family's tables for a person."""

_EVERYTHING: Mapping[Family, IPNetwork] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


@dataclass(frozen=True, slots=True)
class XtState(DnatState):
    """The tables as they were read, and what their rules mean."""

    tables: Tables = field(default_factory=dict, repr=False)


def state_of(tables: Tables) -> XtState:
    """Return the state of the tables, with the elements that their rules name."""
    redirects: dict[Endpoint, Redirect] = {}
    pods: list[IPNetwork] = []
    guarded: list[IPNetwork] = []
    admitted: list[IPNetwork] = []
    originals: list[IPNetwork] = []
    for (family, _), state in tables.items():
        for rule in (rule for rules in state.chains.values() for rule in rules):
            place = rule.destination
            if rule.to and rule.port and place and place.prefixlen == place.max_prefixlen:
                match = Endpoint(place.network_address, rule.port)
                redirect = Redirect(match, rule.to, owner_of(rule.comment))
                redirects.setdefault(redirect.match, redirect)
        jumps = (rule for jumps in state.jumps.values() for _, rule in jumps)
        every = _EVERYTHING[family]
        pods += (rule.source or every for rule in _to(ENTRIES, state.chains.get(PREROUTING, ())))
        admitted += (rule.source or every for rule in _to("RETURN", state.chains.get(GUARD, ())))
        guarded += (rule.destination or every for rule in _to(GUARD, jumps))
        originals += (rule.original or every for rule in _to("RETURN", state.chains.get(TRANSLATED, ())))
    balancers = (one for one in originals if one not in guarded)
    rules = ordered(redirects.values(), pods, guarded, admitted, balancers)
    return XtState(rules, present=any(tables.values()), tables=tables)


def _to(target: str, rules: Iterable[XtRule]) -> Iterator[XtRule]:
    return (rule for rule in rules if rule.target == target and not rule.foreign)


def compared(state: XtState, desired: DnatRules) -> XtState:
    """Return the state with its damage: what is not as `layout` makes it for the elements that exist."""
    elements = state.rules
    expected = replace(
        desired,
        redirects=elements.redirects,
        pods=elements.pods,
        guarded=elements.guarded,
        admitted=elements.admitted,
        balancers=elements.balancers,
    )
    damage = tuple(_damage(state.tables, layout(expected)))
    return replace(
        state,
        damage=tuple(text for text, _ in damage),
        displaced=bool(damage) and all(displaced for _, displaced in damage),
    )


def _damage(tables: Tables, expected: Tables) -> Iterator[tuple[str, bool]]:
    """Yield each damage, and whether it is only others' rules before nodeagent's jumps."""
    for (family, table), found in tables.items():
        wanted = expected[family, table]
        where = f"of the {PROGRAMS[family]} table {table}"
        for chain in sorted({*found.chains, *wanted.chains}):
            if found.chains.get(chain) != wanted.chains.get(chain):
                yield f"chain {chain} {where} is missing, altered or leads nowhere", False
        for chain in sorted({*found.jumps, *wanted.jumps}):
            jumps, expected_jumps = found.jumps.get(chain, ()), wanted.jumps.get(chain, ())
            if [rule for _, rule in jumps] != [rule for _, rule in expected_jumps]:
                yield f"the jump to nodeagent's chain in {chain} {where} is missing or altered", False
            elif jumps != expected_jumps:
                yield f"another rule is before the jump to nodeagent's chain in {chain} {where}", True


def script(wanted: Tables) -> str:
    """Return the text that iptables-restore --noflush takes."""
    lines: list[str] = []
    for (family, table), part in wanted.items():
        if part:
            lines += [f"# {PROGRAMS[family]}-legacy-restore --noflush", f"*{table}"]
            lines += (f":{chain} - [0:0]" for chain in part.chains)
            lines += (f"-A {chain} {rule}" for chain, rules in part.chains.items() for rule in rules)
            lines += (f"-I {chain} {at} {rule}" for chain, jumps in part.jumps.items() for at, rule in jumps)
            lines.append("COMMIT")
    return "".join(f"{line}\n" for line in lines or [f"# all chains {PREFIX}* are deleted"])
