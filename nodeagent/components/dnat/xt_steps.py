"""The steps that lead one legacy table from its actual state to the layout. Pure.

The same steps are shown to a person, as iptables-restore --noflush takes them, and carried out by
xt_tables.py under the lock, from the state that the table has then.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from nodeagent.components.dnat.xt_layout import TABLES, Key, Layout, TableLayout
from nodeagent.components.dnat.xt_rules import XtRule
from nodeagent.components.dnat.xt_state import PROGRAMS, TableState


class XtStep(Struct, frozen=True):
    """One step: `:` creates a chain of ours or empties it, the others are iptables' own commands.

    `place` counts from 1, as for iptables.
    """

    command: Literal[":", "-A", "-D", "-I", "-X"]
    chain: str
    place: int = 0
    rule: XtRule | None = None

    def __str__(self) -> str:
        match self.command:
            case ":":
                return f":{self.chain} - [0:0]"
            case "-A":
                return f"-A {self.chain} {self.rule}"
            case "-D":
                return f"-D {self.chain} {self.place}"
            case "-I":
                return f"-I {self.chain} {self.place} {self.rule}"
            case "-X":
                return f"-X {self.chain}"


def steps(actual: TableState, wanted: TableLayout) -> Iterator[XtStep]:
    """Yield the steps in order; none when the table is as wanted.

    Chains are written before anything leads to them, and deleted once nothing does. Jumps into our chains
    are put on top of the kernel's own chains.
    """
    written = [name for name, rules in wanted.chains.items() if actual.chains.get(name) != rules]
    gone = [name for name in actual.chains if name not in wanted.chains]
    yield from (XtStep(":", name) for name in (*written, *gone))
    yield from (XtStep("-A", name, rule=rule) for name in written for rule in wanted.chains[name])
    for chain in sorted({*actual.jumps, *wanted.jumps}):
        jumps, rules = actual.jumps.get(chain, ()), wanted.jumps.get(chain, ())
        if jumps != tuple(enumerate(rules, 1)):
            yield from (XtStep("-D", chain, place) for place, _ in reversed(jumps))
            yield from (XtStep("-I", chain, place, rule) for place, rule in enumerate(rules, 1))
    yield from (XtStep("-X", name) for name in gone)


def script(tables: Mapping[Key, TableState], wanted: Layout) -> str:
    """Return the steps of all tables as text: one restore per table that changes."""
    lines: list[str] = []
    for family, program in PROGRAMS.items():
        for table in TABLES:
            taken = [str(step) for step in steps(tables[family, table], wanted[family, table])]
            if taken:
                lines += [f"# {program}-legacy-restore --noflush", f"*{table}", *taken, "COMMIT"]
    return "".join(f"{line}\n" for line in lines)
