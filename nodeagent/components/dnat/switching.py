"""One backend in force, never both: what another configuration left of the other one goes. Effects."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from nodeagent.components.component import PartlyAppliedError
from nodeagent.components.dnat.backend import DnatBackend
from nodeagent.components.dnat.change import DnatChange, DnatState, difference
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.errors import ApplyError
from nodeagent.model.desired import NO_RULES, DnatRules


class ExclusiveBackend:
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
        return replace(state, superseded=(self._other.name, left)) if left.present else state

    def script(self, change: DnatChange) -> str:
        """Return both backends' parts, the removal first; see `DnatBackend.script`. Pure."""
        left = change.before.superseded
        removal = self._other.script(difference(left[1], NO_RULES)) if left else ""
        return removal + self._chosen.script(change)

    def run(self, change: DnatChange) -> DnatState:
        """Apply the change; see `DnatBackend.run`.

        Where rules go from one backend to the other, connections are held back for that moment: see
        docs/decisions/0011-iptables-backend.md.
        """
        if not change.superseded:
            return self._chosen.run(change)
        desired = change.desired
        if not desired.redirects:
            self._remove_other()
            return self._run_chosen(desired)
        # A program that holds the lock for long is waited for before connections are held back.
        self._iptables.await_lock()
        before = self._nftables.read()
        self._nftables.hold(desired)
        if self._chosen is self._nftables:
            with self._undone(before):
                self._remove_other()
            state = self._nftables.put(desired)
            return replace(state, transactions=change.before.transactions + 2)
        with self._undone(before):
            try:
                state = self._run_chosen(desired)
            except PartlyAppliedError:
                self._remove_other()
                raise
        self._remove_other()
        return state

    @contextmanager
    def _undone(self, before: DnatState) -> Iterator[None]:
        """Put the nftables table back as it was if the block fails: then nothing has changed."""
        try:
            yield
        except PartlyAppliedError:
            raise
        except ApplyError:
            self._nftables.put(before.rules)
            raise

    def _run_chosen(self, desired: DnatRules) -> DnatState:
        return self._chosen.run(difference(self._chosen.read(), desired))

    def _remove_other(self) -> None:
        self._other.run(difference(self._other.read(), NO_RULES))
