"""The change of the legacy tables as text, the way iptables-restore --noflush takes it. PURE.

For a person's eyes, and a test's: the change itself is worked out anew under the lock, from what stands then.
"""

from collections.abc import Iterator

from nodeagent.appliers.dnat.delta import normalised
from nodeagent.appliers.dnat.interface import DnatChange, DnatDesired, DnatState
from nodeagent.appliers.dnat.xt_layout import TABLES, TableLayout, layout
from nodeagent.appliers.dnat.xt_state import PROGRAMS


def script(change: DnatChange, before: DnatState, desired: DnatDesired) -> str:
    """One restore a table that changes; empty when nothing is to do.

    Args:
        change: What differs.
        before: What stands. What of it is damaged is shown written anew, jumps included.
        desired: As `delta.normalised` returns it.
    """
    if not change:
        return ""
    told = DnatDesired(before.redirects, before.pod_cidrs, before.guarded, before.admitted)
    old, new = layout(normalised(told)), layout(desired)
    lines: list[str] = []
    for family, program in PROGRAMS.items():
        for table in TABLES:
            altered = list(_table(old[family, table], new[family, table], anew=bool(before.damage)))
            if altered:
                lines += [f"# {program}-legacy-restore --noflush", f"*{table}", *altered, "COMMIT"]
    return "".join(f"{line}\n" for line in lines)


def _table(old: TableLayout, new: TableLayout, *, anew: bool) -> Iterator[str]:
    written = [name for name, rules in new.chains.items() if anew or old.chains.get(name) != rules]
    gone = [name for name in old.chains if name not in new.chains]
    # A chain that is declared is made, or emptied where it stands.
    yield from (f":{name} - [0:0]" for name in (*written, *gone))
    yield from (f"-A {name} {rule}" for name in written for rule in new.chains[name])
    for chain in sorted({*old.jumps, *new.jumps}):
        standing, wanted = old.jumps.get(chain, ()), new.jumps.get(chain, ())
        if anew or standing != wanted:
            yield from (f"-D {chain} {rule}" for rule in standing)
            yield from (f"-I {chain} {place} {rule}" for place, rule in enumerate(wanted, 1))
    yield from (f"-X {name}" for name in gone)
