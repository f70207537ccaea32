"""The iptables backend: our chains in the legacy tables nat and mangle, and no others. EFFECTS."""

from collections.abc import Callable, Container, Iterator

from nodeagent.appliers.dnat.delta import difference, normalised, without_families
from nodeagent.appliers.dnat.interface import (
    DnatDesired,
    DnatState,
    FamilyUnavailableError,
    NotConverged,
    Transaction,
)
from nodeagent.appliers.dnat.xt_layout import FAMILIES, TABLES, Key, TableLayout, TableName, layout
from nodeagent.appliers.dnat.xt_lock import WAIT_SECONDS, xtables_lock
from nodeagent.appliers.dnat.xt_questions import is_denied, tables_with_ours
from nodeagent.appliers.dnat.xt_script import script
from nodeagent.appliers.dnat.xt_state import Standing, state_of
from nodeagent.appliers.dnat.xt_tables import XtMissingError, XtTable
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family


class _DeniedError(Exception):
    """An ordinary user asked."""


class IptablesBackend:
    """Implements `interface.DnatBackend` on legacy xtables by python-iptables.

    All commits of a transaction, one a table, are made under one holding of the xtables lock.

    Args:
        lock_wait: Seconds to wait for that lock; None for the usual.
    """

    name = "iptables"

    def __init__(self, lock_wait: float | None = None) -> None:
        self._lock_wait = WAIT_SECONDS if lock_wait is None else lock_wait
        self._tables = {(family, table): XtTable(family, table) for family in FAMILIES for table in TABLES}

    def read(self) -> DnatState:
        """Read our chains; see `DnatBackend.read`. A table that does not exist is not brought into being.

        Raises:
            ApplyError: the kernel or python-iptables does not answer.
        """
        try:
            return state_of({key: self._standing(*key) for key in self._tables})
        except _DeniedError:
            return DnatState(
                unreadable="iptables' tables can't be read without root or CAP_NET_ADMIN: shown is what "
                "would be written if nothing of ours stood there"
            )

    def await_lock(self) -> None:
        """Wait until the xtables lock can be had, and let it go again. Raises ApplyError as `run` does."""
        with xtables_lock(self._lock_wait):
            pass

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:
        """The step from `before` to `desired`; see `DnatBackend.transaction`. PURE.

        Raises:
            ApplyError: `desired` contradicts itself.
        """
        wanted = normalised(desired)
        change = difference(before, wanted)
        return Transaction(change, script(change, before, wanted), wanted)

    def check(self, transaction: Transaction) -> None:
        """Make the change in libiptc's memory and drop it; the kernel's own judgement can't be had before.

        Raises:
            ApplyError: it would be refused.
        """
        for key, wanted in self._work(transaction):
            self._tables[key].rehearse(wanted)

    def run(self, transaction: Transaction) -> None:
        """Apply the transaction, table by table, and read back; see `DnatBackend.run`.

        Raises:
            ApplyError: it was refused; the table it tells of, and those after it, stand as before.
            NotConverged: it was accepted, but something else stands now.
            FamilyUnavailableError: one family has no legacy tables on this node.
        """
        work = list(self._work(transaction))
        if not work:
            return
        missing: dict[Family, str] = {}
        with xtables_lock(self._lock_wait):
            self._each(work, missing, XtTable.change)
        self._judge(transaction, missing)

    def _standing(self, family: Family, table: TableName) -> Standing:
        try:
            if table not in tables_with_ours(family):
                return Standing()
        except OSError as error:
            if is_denied(error):
                raise _DeniedError from error
            raise ApplyError(f"the kernel does not tell its legacy tables: {error.strerror}") from error
        return self._tables[family, table].read()

    def _work(self, transaction: Transaction) -> Iterator[tuple[Key, TableLayout]]:
        """The tables that may have to change, in order: the guard comes first and goes last."""
        if not transaction:
            return
        layouts = layout(transaction.desired)
        for table in TABLES if transaction.desired.guarded else reversed(TABLES):
            for family in FAMILIES:
                if layouts[family, table] or self._standing(family, table):
                    yield (family, table), layouts[family, table]

    def _each(
        self,
        work: list[tuple[Key, TableLayout]],
        missing: dict[Family, str],
        step: Callable[[XtTable, TableLayout], object],
    ) -> None:
        """Take the step with each table, but for families found to be missing."""
        for (family, table), wanted in work:
            if family in missing:
                continue
            try:
                step(self._tables[family, table], wanted)
            except XtMissingError as error:
                missing[family] = str(error)
        if missing.keys() == {family for (family, _), _ in work}:
            raise XtMissingError("\n".join(missing.values()))

    def _judge(self, transaction: Transaction, missing: dict[Family, str]) -> None:
        if left := difference(self.read(), _without(transaction.desired, missing)):
            raise NotConverged(
                "the kernel accepted the change, but iptables' tables are not as they were meant to be: "
                f"another program changes them too. What still differs:\n{left}"
            )
        for family, reason in missing.items():
            applied = str(without_families(transaction.change, missing))
            raise FamilyUnavailableError(
                f"IPv{family} is not redirected, the other family is. {reason}", applied
            )


def _without(desired: DnatDesired, families: Container[int]) -> DnatDesired:
    return DnatDesired(
        tuple(redirect for redirect in desired.redirects if redirect.match.address.version not in families),
        tuple(network for network in desired.pod_cidrs if network.version not in families),
        tuple(network for network in desired.guarded if network.version not in families),
        tuple(network for network in desired.admitted if network.version not in families),
    )
