"""The iptables backend: nodeagent's chains in the legacy tables nat and mangle, and no others.

nat: OUTPUT and PREROUTING jump to nodeagent's chains, which lead into one chain of all entries for both. The
first packet of a TCP connection walks it, as it walks kube-proxy's chain of all Services.

mangle: PREROUTING jumps to the guard, and so does INPUT, which sees packets after every translation; a new
connection that another program's translation leads to the relay is dropped there, by its original
destination. Decision 11 says why not in raw or filter.
"""

import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeagent.components.dnat import xt_rules, xt_tables
from nodeagent.components.dnat.state import DnatChange, DnatState, comment_of, owner_of, with_elements
from nodeagent.components.dnat.xt_rules import PREFIX, PROGRAMS, TABLES, Entry, Table, Tables, XtRule
from nodeagent.linux.inotify import CLOSE_NOWRITE, CLOSE_WRITE, FileEvents
from nodeagent.linux.programs import find_program
from nodeagent.model.addresses import FAMILIES, Endpoint, Family, IPNetwork
from nodeagent.model.desired import LOOPBACK, NO_RULES, PROBED_USERS, DnatRules, Redirect

_LOOK_SECONDS = 10.0
_REST_SECONDS = 0.3
"""Between two looks, however often programs take the lock: large tables take tens of milliseconds to read."""

OUTPUT, PREROUTING, ENTRIES, GUARD, TRANSLATED, USERS, PROBED = (
    f"{PREFIX}{name}" for name in ("OUTPUT", "PREROUTING", "LB", "GUARD", "TRANSLATED", "USERS", "PROBED-")
)


def layout(desired: DnatRules) -> Tables:
    """Return every table's part, empty for a table that needs none; `desired` is `normalised`."""
    makers = {"mangle": _guard, "nat": _nat}
    return {(family, table): makers[table](desired, family) for family in FAMILIES for table in TABLES}


def _guard(desired: DnatRules, family: Family) -> Table:
    guarded = _of(family, desired.guarded)
    if not guarded:
        return Table()
    known = (*guarded, *_of(family, desired.balancers))
    admitted = (XtRule("RETURN", source=network) for network in _of(family, desired.admitted))
    translated = (XtRule("RETURN", original=network) for network in known)
    chains = {GUARD: [*admitted, XtRule("DROP")], TRANSLATED: [*translated, XtRule("DROP")]}
    jumps = [XtRule(GUARD, destination=network, outside=True) for network in guarded]
    arriving = [XtRule(TRANSLATED, destination=network, new=True) for network in guarded]
    places = {"PREROUTING": jumps, "INPUT": jumps + arriving}
    if desired.users:
        chains[USERS] = [XtRule("DROP", users=desired.users)]
        limited = [XtRule(USERS, destination=network, new=True) for network in guarded]
        for port in desired.probed:
            chains[f"{PROBED}{port}"] = [XtRule("DROP", users=PROBED_USERS)]
            probes = XtRule(f"{PROBED}{port}", destination=LOOPBACK[family], tcp=True, port=port, new=True)
            limited.append(probes)
        places["POSTROUTING"] = limited
    return _table(family, chains, places)


def _nat(desired: DnatRules, family: Family) -> Table:
    redirects = [redirect for redirect in desired.redirects if redirect.match.address.version == family]
    # A pod's hostPort and kube-proxy's NodePorts take their port of every local address; here, these rules
    # of the same table are not reached by what is sent to the relay. Without redirects, hosts lines lead
    # there: load balancers that are served by their hostnames.
    kept = [XtRule("ACCEPT", destination=network) for network in _of(family, desired.guarded)]
    if not redirects and not kept:
        return Table()
    chains = {OUTPUT: kept, PREROUTING: kept}
    if redirects:
        of_pods = (
            XtRule(ENTRIES, source=network, tcp=True, interface=name)
            for network in _of(family, desired.pods)
            for name in desired.options.interfaces or ("",)
        )
        entries = [
            xt_rules.redirecting(redirect.match, redirect.to, comment_of(redirect.load_balancer))
            for redirect in redirects
        ]
        chains = {OUTPUT: [XtRule(ENTRIES, tcp=True), *kept], PREROUTING: [*of_pods, *kept], ENTRIES: entries}
    return _table(family, chains, {"OUTPUT": [XtRule(OUTPUT)], "PREROUTING": [XtRule(PREROUTING)]})


def _of(family: Family, networks: Iterable[IPNetwork]) -> list[IPNetwork]:
    return [network for network in networks if network.version == family]


def _table(family: Family, chains: Mapping[str, list[XtRule]], jumps: Mapping[str, list[XtRule]]) -> Table:
    def entries(rules: list[XtRule]) -> tuple[Entry, ...]:
        return tuple(xt_rules.entry_of(family, rule) for rule in rules)

    return Table(
        {chain: entries(rules) for chain, rules in chains.items()},
        {chain: tuple(enumerate(entries(rules), 1)) for chain, rules in jumps.items()},
    )


@dataclass(frozen=True, slots=True)
class XtState(DnatState):
    """The tables as they were read, and what their rules mean."""

    tables: Tables = field(default_factory=dict, repr=False)

    def compared(self, desired: DnatRules) -> "XtState":
        expected = with_elements(desired, self.rules.redirects, self.rules.ranges)
        damage = tuple(_damage(self.tables, layout(expected)))
        return replace(
            self,
            damage=tuple(problem for problem, _ in damage),
            displaced=bool(damage) and all(displaced for _, displaced in damage),
        )


# The chain that has the rules, their target, and which of `networks` is the range.
_RANGES = {
    "pods": (PREROUTING, ENTRIES, 0),
    "guarded": ("", GUARD, 1),
    "admitted": (GUARD, "RETURN", 0),
    "balancers": (TRANSLATED, "RETURN", 2),
}


def state_of(tables: Tables) -> XtState:
    """Return the state of the tables, with the elements that their rules name."""
    redirects: dict[Endpoint, Redirect] = {}
    ranges: dict[str, list[IPNetwork]] = {name: [] for name in _RANGES}
    for (family, _), table in tables.items():
        for entry in (entry for entries in table.chains.values() for entry in entries):
            if translated := xt_rules.translation(family, entry):
                match, to, comment = translated
                redirects.setdefault(match, Redirect(match, to, owner_of(comment)))
        jumps = [entry for entries in table.jumps.values() for _, entry in entries]
        for name, (chain, target, place) in _RANGES.items():
            for entry in table.chains.get(chain, ()) if chain else jumps:
                if entry.target == target:
                    with suppress(ValueError, struct.error):
                        ranges[name].append(xt_rules.networks_of(family, entry)[place])
    ranges["balancers"] = [network for network in ranges["balancers"] if network not in ranges["guarded"]]
    rules = with_elements(NO_RULES, redirects.values(), ranges)
    return XtState(rules, present=any(tables.values()), tables=tables)


def _damage(tables: Tables, expected: Tables) -> Iterator[tuple[str, bool]]:
    """Yield each damage, and whether it is only others' rules before nodeagent's jumps."""
    for (family, table), actual in tables.items():
        wanted = expected[family, table]
        where = f"of the {PROGRAMS[family]} table {table}"
        for chain in sorted({*actual.chains, *wanted.chains}):
            if actual.chains.get(chain) != wanted.chains.get(chain):
                yield f"chain {chain} {where} is missing, altered or leads nowhere", False
        for chain in sorted({*actual.jumps, *wanted.jumps}):
            jumps, expected_jumps = actual.jumps.get(chain, ()), wanted.jumps.get(chain, ())
            if [rule for _, rule in jumps] != [rule for _, rule in expected_jumps]:
                yield f"the jump to nodeagent's chain in {chain} {where} is missing or altered", False
            elif jumps != expected_jumps:
                yield f"another rule is before the jump to nodeagent's chain in {chain} {where}", True


class XtablesWatch(FileEvents):
    """Implements `component.Watch`: after each use of the lock, and every ten seconds, until nft is there."""

    def __init__(self, lock: Path) -> None:
        # The kernel reports no change of a legacy table, but iptables, and so kube-proxy, opens this before.
        super().__init__(lock, CLOSE_WRITE | CLOSE_NOWRITE)
        self._nft = find_program("nft")
        self._looked_at = time.monotonic()
        self._taken = False

    @property
    def seconds(self) -> float:  # type: ignore[override]
        rest = _REST_SECONDS if self._taken else _LOOK_SECONDS
        return max(0.0, self._looked_at + rest - time.monotonic())

    def drain(self) -> str:
        if find_program("nft") != self._nft:
            raise OSError("the rules may no longer be in iptables' tables")
        self._taken = bool(super().drain()) or self._taken
        if self.seconds > 0:
            return ""
        taken, self._taken, self._looked_at = self._taken, False, time.monotonic()
        cause = "a program took the lock of" if taken else "an occasional look at"
        return f"{cause} iptables' tables"


class IptablesBackend:
    """Implements `state.DnatBackend` on legacy xtables: one commit per table, all under one lock."""

    name = "iptables"

    def read(self) -> DnatState:
        try:
            keys = [(family, table) for family in FAMILIES for table in TABLES]
            return state_of({key: xt_tables.read_table(key) for key in keys})
        except PermissionError:
            return DnatState(unreadable="iptables' tables can't be read without root or CAP_NET_ADMIN")

    def script(self, change: DnatChange) -> str:
        """Return all of nodeagent's chains as `iptables-restore --noflush` takes them, for a person."""
        lines: list[str] = []
        for (family, table), part in layout(change.desired).items():
            if part:
                lines += [f"# {PROGRAMS[family]}-legacy-restore --noflush", f"*{table}"]
                lines += (f":{chain} - [0:0]" for chain in part.chains)
                lines += (f"-A {chain} {rule.text}" for chain, rules in part.chains.items() for rule in rules)
                lines += (
                    f"-I {chain} {place} {jump.text}"
                    for chain, jumps in part.jumps.items()
                    for place, jump in jumps
                )
                lines.append("COMMIT")
        return "".join(f"{line}\n" for line in lines or [f"# all chains {PREFIX}* are deleted"])

    def run(self, change: DnatChange) -> str:
        """Apply the change; tables after one that is rejected are as before."""
        if not change:
            return ""
        wanted = layout(change.desired)
        # The guard is made first and removed last.
        tables = TABLES if change.desired.guarded else reversed(TABLES)
        keys = [(family, table) for table in tables for family in FAMILIES]
        work = [key for key in keys if wanted[key] or xt_tables.read_table(key)]
        missing: dict[Family, str] = {}
        with xt_tables.xtables_lock() if work else nullcontext():
            for key in work:
                if key[0] not in missing:
                    try:
                        xt_tables.change_table(key, wanted[key])
                    except xt_tables.XtMissingError as error:
                        missing[key[0]] = str(error)
        if missing and missing.keys() == {family for family, _ in work}:
            raise xt_tables.XtMissingError("\n".join(missing.values()))
        return "\n".join(
            f"IPv{family} is not redirected, the other family is. {reason}"
            for family, reason in missing.items()
        )

    def watch(self) -> XtablesWatch:
        return XtablesWatch(xt_tables.lock_path())
