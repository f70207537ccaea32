"""DNAT as a component of the node, on whichever backend the configuration and the kernel allow. Effects.

`choose` asks nft and the kernel which backend works. `ExclusiveBackend` removes what another configuration
left of the other one.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from nodeagent.components.component import ComponentName, Watch
from nodeagent.components.dnat.iptables import IptablesBackend, missing_table
from nodeagent.components.dnat.nft_script import FAMILIES, TABLE, replacement
from nodeagent.components.dnat.nftables import (
    NftablesBackend,
    NftBusyError,
    NftError,
    NftMissingError,
    NftPermissionError,
    NftProgram,
)
from nodeagent.components.dnat.state import (
    DnatBackend,
    DnatChange,
    DnatState,
    difference,
    grown,
    normalised,
)
from nodeagent.errors import ApplyError
from nodeagent.model.desired import NO_RULES, Desired

_LOG = logging.getLogger("nodeagent")

Option = Literal["auto", "nftables", "iptables", "none"]


class Dnat:
    """Implements `component.Component`.

    Each reading looks again for a backend that is not available: a module may still be loaded. Until it is
    found, every reading raises ApplyError with what is missing. A kernel that can't limit the connections of
    local users (nft_connlimit; xt_owner, xt_connlimit) gets all other rules.
    """

    name: ComponentName = "dnat"

    def __init__(self, option: Option) -> None:
        self._option = option
        self._found: DnatBackend | None = None
        self._limits_users = True

    @property
    def backend(self) -> Option:
        """The name of the active backend; the option, while there is none or none is wanted."""
        if self._found is None or self._option == "none":
            return self._option
        return "nftables" if self._found.name == "nftables" else "iptables"

    def read(self) -> DnatState:
        """Read the actual state; see `DnatBackend.read`."""
        return self._backend().read()

    def diff(self, actual: DnatState, desired: Desired, *, keep: bool = False) -> DnatChange:
        """Return the difference from the desired rules, one transaction; see `component.Component`. Pure.

        Raises:
            ApplyError: they contradict each other.
        """
        rules = desired.dnat if self._limits_users else replace(desired.dnat, users=0)
        change = difference(actual, grown(actual.rules, normalised(rules)) if keep else rules)
        off = "off, but for the guard; " if self._option == "none" else ""
        text = self._backend().script(change) if change else ""
        return replace(change, text=text, how=f"{off}{self._backend().name} transaction")

    def apply(self, diff: DnatChange) -> str:
        """Apply a change; see `component.Component`."""
        try:
            return self._backend().run(diff)
        except ApplyError as error:
            if not diff.desired.users:
                raise
            without = replace(diff.desired, users=0)
            problem = self._backend().run(difference(self._backend().read(), without))
            # Without the limit it works. If it does with the limit now, the kernel was only busy before.
            with suppress(ApplyError):
                return self._backend().run(difference(self._backend().read(), diff.desired))
            fields = {"err": str(error)}
            _LOG.warning("Could not limit the connections of local users", extra={"fields": fields})
            self._limits_users = False
            return problem

    def watch(self) -> Watch:
        """Return notifications about the rules. Raises OSError, or ApplyError without a backend."""
        return self._backend().watch()

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
        wanted = (iptables, nftables) if option == "iptables" else (nftables, iptables)
        return ExclusiveBackend(*wanted)
    if option in ("iptables", "none"):
        return iptables
    if option == "nftables":
        raise obstacle
    missing = [missing_table(family, "nat") for family in FAMILIES]
    if all(missing):
        raise ApplyError(
            "dnat.backend: auto: neither nftables nor legacy iptables works on this node; no DNAT rule was "
            f"changed. Hostnames in the hosts file are still served.\n  nftables: {obstacle}\n"
            f"  iptables: {'; '.join(missing)}"
        ) from obstacle
    return iptables


def _nft_obstacle(nft: NftProgram) -> ApplyError | None:
    """Let the kernel check a whole scratch table, as knftables does when it starts; nothing is made."""
    try:
        scratch = replacement(NO_RULES).replace(f"inet {TABLE}", f"inet {_SCRATCH}")
        nft.run(scratch, only_check=True)
    except (NftPermissionError, NftBusyError):
        return None
    except NftMissingError as error:
        return error
    except NftError as error:
        return ApplyError(
            "This kernel can't do DNAT in an inet table of nftables; no DNAT rule was changed. It requires "
            "Linux 5.2 or newer with the modules nf_tables, nft_chain_nat, nft_ct and nft_nat (modprobe them "
            f"on the host), or dnat.backend: iptables, or none.\n  {error}"
        )
    return None


class ExclusiveBackend:
    """Implements `state.DnatBackend` by one of the two, and removes the rules of the other.

    Args:
        chosen: The active one.
        other: For iptables, whether or not it works: reading it costs almost nothing if it has none of
            nodeagent's rules.
    """

    def __init__(self, chosen: DnatBackend, other: DnatBackend) -> None:
        self.name = chosen.name
        self._chosen = chosen
        self._other = other

    def read(self) -> DnatState:
        """Return the actual state of both; see `DnatBackend.read`."""
        state = self._chosen.read()
        left = self._other.read()
        return replace(state, leftover=(self._other.name, left)) if left.present else state

    def script(self, change: DnatChange) -> str:
        """Return both backends' parts, the removal last; see `DnatBackend.script`. Pure."""
        left = change.before.leftover
        removal = self._other.script(difference(left[1], NO_RULES)) if left else ""
        return self._chosen.script(change) + removal

    def run(self, change: DnatChange) -> str:
        """Apply the change; see `DnatBackend.run`.

        If rules move from one backend to the other, both are active for a moment: see
        docs/decisions/0011-iptables-backend.md.
        """
        problem = self._chosen.run(change)
        if change.before.leftover:
            self._other.run(difference(self._other.read(), NO_RULES))
        return problem

    def watch(self) -> Watch:
        """See `DnatBackend.watch`."""
        return self._chosen.watch()
