"""Which backend serves this node. Effects: asks nft and the kernel, but makes nothing of ours."""

from typing import Literal

from nodeagent.components.dnat.backend import DnatBackend
from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nft_program import (
    NftBusyError,
    NftError,
    NftMissingError,
    NftPermissionError,
    NftProgram,
)
from nodeagent.components.dnat.nft_script import replacement
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.switching import ExclusiveBackend
from nodeagent.components.dnat.xt_questions import missing_table
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Family
from nodeagent.model.desired import NO_RULES

Option = Literal["auto", "nftables", "iptables", "none"]

_SCRATCH = "nodeagent_probe"


def choose(option: Option, program: NftProgram | None = None) -> DnatBackend:
    """The backend for the option `dnat.backend`.

    Args:
        option: As in the configuration. `auto` takes nftables where it works, else legacy iptables.
        program: How nft is run.

    Returns:
        The backend, which removes what another configuration left of the other one; for `none`, by which no
        rules are ever desired, one that can remove what is left of both. Where nft does not work, nothing of
        ours can be in nftables, and it is not asked again. Without permission to probe (a dry run), and
        where the node is too busy for it, nftables counts as working.

    Raises:
        ApplyError: what was asked for does not work on this node, and why.
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
    """Let the kernel judge a whole scratch table, as knftables does when it starts; nothing is made."""
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
    """What legacy iptables lacks in both families; empty when it works in one."""
    families: tuple[Family, Family] = (4, 6)
    missing = [missing_table(family, "nat") for family in families]
    return "" if "" in missing else "; ".join(missing)
