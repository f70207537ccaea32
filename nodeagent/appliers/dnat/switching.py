"""One backend in force, never both: what another configuration left of the other one goes. EFFECTS."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from nodeagent.appliers.dnat.interface import (
    DnatBackend,
    DnatDesired,
    DnatState,
    FamilyUnavailableError,
    Transaction,
)
from nodeagent.appliers.dnat.iptables import IptablesBackend
from nodeagent.appliers.dnat.nftables import NftablesBackend
from nodeagent.errors import ApplyError


class SoleBackend:
    """Implements `interface.DnatBackend` by one of the two, and removes what stands of the other.

    Args:
        chosen: Which of the two is in force.
        nftables: On a node where nft works.
        iptables: Whether or not it works: reading it takes next to nothing where nothing of ours stands.
    """

    def __init__(
        self, chosen: Literal["nftables", "iptables"], nftables: NftablesBackend, iptables: IptablesBackend
    ) -> None:
        self.name = chosen
        self._nftables = nftables
        self._iptables = iptables
        self._chosen: DnatBackend = nftables if chosen == "nftables" else iptables
        self._other: DnatBackend = iptables if chosen == "nftables" else nftables

    def read(self) -> DnatState:
        """What stands of either; see `DnatBackend.read`."""
        state = self._chosen.read()
        left = self._other.read()
        return replace(state, superseded=left) if left.present else state

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:
        """The step from `before` to `desired` in the one and to nothing in the other. PURE."""
        own = self._chosen.transaction(before, desired)
        if before.superseded is None:
            return own
        removal = self._other.transaction(before.superseded, DnatDesired())
        action = own.change.action if own else "supersede"
        change = replace(own.change, action=action, superseded=self._other.name)
        return Transaction(change, removal.text + own.text, own.desired)

    def check(self, transaction: Transaction) -> None:
        """Let the kernel judge the chosen backend's part; a removal is never refused."""
        if not transaction.change.superseded:
            self._chosen.check(transaction)

    def run(self, transaction: Transaction) -> None:
        """Apply the transaction; see `DnatBackend.run`.

        Where rules go from one backend to the other, connections are held back for that moment: see
        docs/decisions/0011-iptables-backend.md.
        """
        if not transaction.change.superseded:
            self._chosen.run(transaction)
            return
        desired = transaction.desired
        if not desired.redirects:
            self._remove_other()
            self._run_chosen(desired)
            return
        # Whoever holds the lock for long is waited for before connections are held back, not meanwhile.
        self._iptables.await_lock()
        if self._chosen is self._nftables:
            before = self._nftables.read()
            self._nftables.hold(desired)
            with self._undone(before):
                self._remove_other()
            self._nftables.put(desired)
        else:
            left = self._nftables.read()
            self._nftables.hold(desired)
            with self._undone(left):
                try:
                    self._run_chosen(desired)
                except FamilyUnavailableError:
                    self._remove_other()
                    raise
            self._remove_other()

    @contextmanager
    def _undone(self, before: DnatState) -> Iterator[None]:
        """Put the nftables table back as it was if the block fails: then nothing has changed."""
        try:
            yield
        except FamilyUnavailableError:
            raise
        except ApplyError:
            self._nftables.put(told(before))
            raise

    def _run_chosen(self, desired: DnatDesired) -> None:
        self._chosen.run(self._chosen.transaction(self._chosen.read(), desired))

    def _remove_other(self) -> None:
        self._other.run(self._other.transaction(self._other.read(), DnatDesired()))


def told(state: DnatState) -> DnatDesired:
    """What a state amounts to, as something to be made."""
    return DnatDesired(state.redirects, state.pod_cidrs, state.guarded, state.admitted)
