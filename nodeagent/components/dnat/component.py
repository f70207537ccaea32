"""DNAT as a component of the node, on whichever backend the configuration and the kernel allow. Effects.

`choose` asks nft and the kernel which backend works. Only one backend is ever active: `ExclusiveBackend`
removes what another configuration left of the other one.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from nodeagent.components.component import ComponentName, PartlyAppliedError, Preview
from nodeagent.components.dnat.backend import DnatBackend
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nft_script import replacement
from nodeagent.components.dnat.nftables import (
    NftablesBackend,
    NftBusyError,
    NftError,
    NftMissingError,
    NftPermissionError,
    NftProgram,
)
from nodeagent.components.dnat.state import DnatChange, DnatState, difference
from nodeagent.components.dnat.xt_questions import missing_table
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family
from nodeagent.model.desired import NO_RULES, Desired, DnatRules

Option = Literal["auto", "nftables", "iptables", "none"]


class Dnat:
    """Implements `component.Component`.

    Each reading looks again for a backend that is not available: a module may still be loaded. Until it is
    found, every reading raises ApplyError with what is missing.

    Args:
        option: `dnat.backend`.
    """

    name: ComponentName = "dnat"

    def __init__(self, option: Option) -> None:
        self._option = option
        self._found: DnatBackend | None = None
        with suppress(ApplyError):  # the first reading reports it
            self._backend()

    @property
    def backend(self) -> Literal["auto", "nftables", "iptables", "none"]:
        """The name of the active backend; the option, while there is none or none is wanted."""
        if self._found is None or self._option == "none":
            return self._option
        return "nftables" if self._found.name == "nftables" else "iptables"

    def read(self) -> DnatState:
        """Read the actual state; see `DnatBackend.read`."""
        return self._backend().read()

    def diff(self, actual: DnatState, desired: Desired) -> DnatChange:
        """Return the change to the desired rules. Pure.

        Raises:
            ApplyError: they contradict each other.
        """
        return difference(actual, desired.dnat)

    def preview(self, change: DnatChange) -> Preview:
        """Return the change as the backend runs it. Pure."""
        text = self._backend().script(change) if change else ""
        return Preview(text, f"{self.backend} transaction", is_diff=False)

    def grow(self, change: DnatChange) -> DnatState:
        """Add, alter and repair in one transaction; see `DnatBackend.run`."""
        growing = change.growing
        return self._backend().run(growing) if growing else change.before

    def shrink(self, change: DnatChange) -> DnatState:
        """Apply the whole change in one transaction; after `grow`, only removals are left."""
        return self._backend().run(change) if change else change.before

    def _backend(self) -> DnatBackend:
        if self._found is None:
            self._found = choose(self._option)
        return self._found


_SCRATCH = "nodeagent_probe"


def choose(option: Option, program: NftProgram | None = None) -> DnatBackend:
    """Return the backend for the option `dnat.backend`.

    Args:
        option: As in the configuration. `auto` takes nftables if it works, otherwise legacy iptables.
        program: How nft is run.

    Returns:
        The backend, which removes what another configuration left of the other one; for `none`, with which no
        rules are ever desired, one that can remove what is left of both. If nft does not work, none of
        nodeagent's rules can be in nftables, and nft is not called again. Without permission to probe (a dry
        run), and if the node is too busy for it, nftables counts as working.

    Raises:
        ApplyError: the requested backend does not work on this node, and why.
    """
    nft = program or NftProgram()
    obstacle = _nft_obstacle(nft)
    iptables = IptablesBackend()
    if obstacle is None:
        nftables = NftablesBackend(nft)
        return ExclusiveBackend("iptables" if option == "iptables" else "nftables", nftables, iptables)
    if option in ("iptables", "none"):
        return iptables
    if option == "nftables":
        raise obstacle
    if missing := _iptables_obstacle():
        raise ApplyError(
            "dnat.backend: auto: neither nftables nor legacy iptables works on this node; no DNAT rule was "
            f"changed. Hostnames in the hosts file are still served.\n  nftables: {obstacle}\n"
            f"  iptables: {missing}"
        ) from obstacle
    return iptables


def _nft_obstacle(nft: NftProgram) -> ApplyError | None:
    """Let the kernel check a whole scratch table, as knftables does when it starts; nothing is made."""
    try:
        nft.check(replacement(NO_RULES, table=_SCRATCH))
    except (NftPermissionError, NftBusyError):
        return None
    except NftMissingError as error:
        return error
    except NftError as error:
        return ApplyError(
            "This kernel can't do DNAT in an inet table of nftables; no DNAT rule was changed. It requires "
            "Linux 5.2 or newer with the modules nf_tables, nft_chain_nat and nft_nat (modprobe them on the "
            f"host), or dnat.backend: iptables, or none.\n  {error}"
        )
    return None


def _iptables_obstacle() -> str:
    """Return what legacy iptables lacks in both families; empty if it works in one."""
    families: tuple[Family, Family] = (4, 6)
    missing = [missing_table(family, "nat") for family in families]
    return "" if "" in missing else "; ".join(missing)


class ExclusiveBackend:
    """Implements `backend.DnatBackend` by one of the two, and removes the rules of the other.

    Args:
        chosen: The active one.
        nftables: Given if nft works on the node.
        iptables: Whether or not it works: reading it costs almost nothing if it has none of nodeagent's
            rules.
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
        """Return the actual state of both; see `DnatBackend.read`."""
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

        If rules move from one backend to the other, connections are held back for that moment: see
        docs/decisions/0011-iptables-backend.md.
        """
        if not change.superseded:
            return self._chosen.run(change)
        desired = change.desired
        if not desired.redirects:
            self._remove_other()
            return self._run_chosen(desired)
        # Wait for a program that holds the lock for long before connections are held back.
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
        """Restore the nftables table if the block fails: then nothing has changed."""
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
