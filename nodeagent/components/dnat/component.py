"""DNAT as a component of the node, on whichever backend the configuration and the kernel allow. Effects."""

import logging
import math
import time
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from nodeagent.components.component import Component, Watch
from nodeagent.components.dnat import nftables
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nft_table import TABLE
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend, DnatChange, DnatState, difference
from nodeagent.components.dnat.xt_tables import missing_nat
from nodeagent.errors import ApplyError
from nodeagent.linux.programs import find_program
from nodeagent.model.addresses import FAMILIES
from nodeagent.model.desired import NO_RULES, Desired

_LIMIT_AGAIN_SECONDS = 600.0
_LOG = logging.getLogger("nodeagent")
Option = Literal["auto", "nftables", "iptables", "none"]
_SCRATCH = "nodeagent_probe"


class Dnat(Component[DnatState, DnatChange]):
    """Implements `component.Component` by one backend; removes what another configuration left of the other.

    Each reading looks again for a backend, or for nft, that was not there before. A kernel that can't limit
    local users' connections (nft_connlimit; xt_owner, xt_connlimit) gets all other rules, and is asked later.
    """

    def __init__(self, option: Option) -> None:
        self._option = option
        self._found: tuple[DnatBackend, DnatBackend | None] | None = None
        self._without_nft = False
        self._limited_at = -math.inf
        """When users are to be limited, after the kernel refused it."""

    def read(self) -> DnatState:
        self._look_for_nft()
        active, other = self._backends()
        state = active.read()
        leftover = other.read() if other else state
        return replace(state, leftover=(other.name, leftover)) if other and leftover.present else state

    def diff(self, actual: DnatState, desired: Desired, *, keep: bool = False) -> DnatChange:
        limited = time.monotonic() >= self._limited_at
        rules = desired.dnat if limited else replace(desired.dnat, users=0)
        active, other = self._backends()
        change = difference(actual, rules, keep=keep)
        off = "off, but for the guard; " if self._option == "none" else ""
        parts = [(active, change)]
        if other and (leftover := change.before.leftover):
            parts.append((other, difference(leftover[1], NO_RULES)))
        return replace(change, parts=tuple(parts), how=f"{off}{active.name} transaction")

    def apply(self, diff: DnatChange) -> str:
        """Apply it. If the backend changes, both are active for a moment: decision 11."""
        try:
            return self._run(diff)
        except ApplyError as error:
            if not diff.desired.users:
                raise
            unlimited = replace(diff.desired, users=0)
            problem = self._run(difference(self.read(), unlimited, keep=diff.keep))
            # Without the limit it works. If it does with the limit now, the kernel was only busy before.
            with suppress(ApplyError):
                return self._run(difference(self.read(), diff.desired, keep=diff.keep))
            fields = {"err": str(error)}
            _LOG.warning("Could not limit the connections of local users", extra={"fields": fields})
            self._limited_at = time.monotonic() + _LIMIT_AGAIN_SECONDS
            return problem

    def _run(self, change: DnatChange) -> str:
        active, other = self._backends()
        problem = active.run(change)
        if other and change.before.leftover:
            other.run(difference(other.read(), NO_RULES))
        return problem

    def watch(self) -> Watch:
        self._look_for_nft()  # or what is watched would not be what is read next
        return self._backends()[0].watch()

    def _look_for_nft(self) -> None:
        if self._without_nft and find_program("nft"):
            self._found = None

    def _backends(self) -> tuple[DnatBackend, DnatBackend | None]:
        if self._found is None:
            self._without_nft = find_program("nft") is None
            self._found = choose(self._option)
        return self._found


def choose(option: Option, nft: NftablesBackend | None = None) -> tuple[DnatBackend, DnatBackend | None]:
    """Return the backend for the option `dnat.backend`, and the other one, of which nothing is to be left.

    If nft does not work, there is no other one. Without permission to probe (a dry run), and if the node is
    too busy for it, nftables counts as working. Raises ApplyError if the requested backend does not work.
    """
    nft, iptables = nft or NftablesBackend(), IptablesBackend()
    obstacle = _nft_obstacle(nft)
    if obstacle is None:
        return (iptables, nft) if option == "iptables" else (nft, iptables)
    if option in ("iptables", "none"):
        return iptables, None
    if option == "nftables":
        raise obstacle
    missing = [missing_nat(family) for family in FAMILIES]
    if all(missing):
        raise ApplyError(
            "dnat.backend: auto: neither nftables nor legacy iptables works on this node; no DNAT rule was "
            f"changed. Hostnames in the hosts file are still served.\n  nftables: {obstacle}\n"
            f"  iptables: {'; '.join(missing)}"
        ) from obstacle
    return iptables, None


def _nft_obstacle(nft: NftablesBackend) -> ApplyError | None:
    """Let the kernel check a whole scratch table; nothing is made."""
    try:
        scratch = nftables.replacement(NO_RULES).replace(f"inet {TABLE}", f"inet {_SCRATCH}")
        nft.execute(scratch, "--check")
    except (nftables.NftPermissionError, nftables.NftBusyError):
        return None
    except nftables.NftMissingError as error:
        return error
    except nftables.NftError as error:
        return ApplyError(
            "This kernel can't do DNAT in an inet table of nftables; no DNAT rule was changed. It requires "
            "Linux 5.2 or newer with the modules nf_tables, nft_chain_nat, nft_ct and nft_nat (modprobe them "
            f"on the host), or dnat.backend: iptables, or none.\n  {error}"
        )
    return None
