"""The iptables backend: nodeagent's chains in the legacy tables nat and mangle, and no others. Effects."""

from collections.abc import Iterator
from dataclasses import replace

from nodeagent.components.component import PartlyAppliedError
from nodeagent.components.dnat.backend import NotConverged
from nodeagent.components.dnat.state import DnatChange, DnatState, difference, without_families
from nodeagent.components.dnat.xt_layout import (
    ABSENT,
    FAMILIES,
    TABLES,
    Key,
    TableLayout,
    TableName,
    TableState,
    XtState,
    layout,
    state_of,
)
from nodeagent.components.dnat.xt_layout import script as xt_script
from nodeagent.components.dnat.xt_questions import is_denied, tables_with_ours
from nodeagent.components.dnat.xt_tables import WAIT_SECONDS, XtMissingError, XtTable, xtables_lock
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family
from nodeagent.model.desired import NO_RULES


class _DeniedError(Exception):
    """The caller is an ordinary user."""


class IptablesBackend:
    """Implements `backend.DnatBackend` on legacy xtables by python-iptables.

    All commits of a transaction, one per table, are made while the xtables lock is held once.

    Args:
        lock_wait: Seconds to wait for that lock; None for the usual.
    """

    name = "iptables"

    def __init__(self, lock_wait: float | None = None) -> None:
        self._lock_wait = WAIT_SECONDS if lock_wait is None else lock_wait
        self._tables = {(family, table): XtTable(family, table) for family in FAMILIES for table in TABLES}

    def read(self) -> DnatState:
        """Read nodeagent's chains; see `DnatBackend.read`. A table that does not exist is not created.

        Raises:
            ApplyError: the kernel or python-iptables does not answer.
        """
        try:
            return state_of({key: self._state(*key) for key in self._tables})
        except _DeniedError:
            return DnatState(
                unreadable="iptables' tables can't be read without root or CAP_NET_ADMIN: this shows what "
                "would be written if they held no rules of nodeagent"
            )

    def await_lock(self) -> None:
        """Wait until the xtables lock is available, and release it again. Raises ApplyError as `run` does."""
        with xtables_lock(self._lock_wait):
            pass

    def script(self, change: DnatChange) -> str:
        """Return the steps as iptables-restore takes them; see `DnatBackend.script`. Pure.

        For a person. Under the lock, they are computed again, from the tables as they are then.
        """
        tables = change.before.tables if isinstance(change.before, XtState) else ABSENT
        return xt_script(tables, layout(change.desired)) if change.action != "none" else ""

    def run(self, change: DnatChange) -> DnatState:
        """Apply the change, table by table, and read back; see `DnatBackend.run`.

        Raises:
            ApplyError: it was rejected; the table it names, and those after it, are as before.
            NotConverged: it was accepted, but the tables have other rules now.
            PartlyAppliedError: one family has no legacy tables on this node.
        """
        work = list(self._work(change))
        if not work:
            return change.before
        missing: dict[Family, str] = {}
        with xtables_lock(self._lock_wait):
            for (family, table), wanted in work:
                if family in missing:
                    continue
                try:
                    self._tables[family, table].change(wanted)
                except XtMissingError as error:
                    missing[family] = str(error)
        if missing.keys() == {family for (family, _), _ in work}:
            raise XtMissingError("\n".join(missing.values()))
        return self._judged(change, missing)

    def _state(self, family: Family, table: TableName) -> TableState:
        try:
            if table not in tables_with_ours(family):
                return TableState()
        except OSError as error:
            if is_denied(error):
                raise _DeniedError from error
            raise ApplyError(f"could not list the kernel's legacy tables: {error.strerror}") from error
        return self._tables[family, table].read()

    def _work(self, change: DnatChange) -> Iterator[tuple[Key, TableLayout]]:
        """Yield the tables that may need changes, in order: the guard is made first and removed last."""
        if not change:
            return
        layouts = layout(change.desired)
        for table in TABLES if change.desired.guarded else reversed(TABLES):
            for family in FAMILIES:
                if layouts[family, table] or self._state(family, table):
                    yield (family, table), layouts[family, table]

    def _judged(self, change: DnatChange, missing: dict[Family, str]) -> DnatState:
        state = self.read()
        if left := difference(state, without_families(change.desired, missing)):
            raise NotConverged(
                "the kernel accepted the change, but iptables' tables are not in the desired state: "
                f"another program changes them, too. What still differs:\n{left}"
            )
        for family, reason in missing.items():
            served = replace(
                change,
                added=without_families(change.added, missing),
                removed=without_families(change.removed, missing),
            )
            unchanged = served.added == served.removed == NO_RULES and not change.damage
            raise PartlyAppliedError(
                f"IPv{family} is not redirected, the other family is. {reason}",
                state,
                "" if unchanged else str(served),
            )
        return state
