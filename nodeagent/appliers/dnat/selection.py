"""Which backend serves this node. EFFECTS: asks nft, but makes nothing."""

from typing import Literal

from nodeagent.appliers.dnat.interface import DnatBackend, DnatDesired, DnatState, Transaction
from nodeagent.appliers.dnat.iptables import IptablesBackend
from nodeagent.appliers.dnat.nft_program import NftError, NftMissingError, NftPermissionError, NftProgram
from nodeagent.appliers.dnat.nft_script import replacement
from nodeagent.appliers.dnat.nftables import NftablesBackend
from nodeagent.errors import ApplyError

Option = Literal["auto", "nftables", "iptables", "none"]

_SCRATCH = "nodeagent_probe"


class RemovingBackend:
    """Whatever is desired, it leads to nothing: rules of an earlier configuration go, none are made.

    Args:
        backend: Whose rules are removed.
    """

    name = "none"

    def __init__(self, backend: DnatBackend) -> None:
        self._backend = backend

    def read(self) -> DnatState:
        """What stands; see `DnatBackend.read`."""
        return self._backend.read()

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:  # noqa: ARG002
        """The step from `before` to nothing."""
        return self._backend.transaction(before, DnatDesired())

    def check(self, transaction: Transaction) -> None:
        """Let the kernel judge the removal."""
        self._backend.check(transaction)

    def run(self, transaction: Transaction) -> None:
        """Remove what stands."""
        self._backend.run(transaction)


def choose(option: Option, program: NftProgram | None = None) -> DnatBackend | None:
    """The backend for the option `dnat.backend`.

    Args:
        option: As in the configuration. `auto` takes nftables.
        program: How nft is run.

    Returns:
        The backend; for `none` one that only removes, or None where there is no nft, so that nothing of
        ours can stand. Without permission to probe (a dry run) nftables counts as working.

    Raises:
        ApplyError: what was asked for does not work on this node, and why.
    """
    nft = program or NftProgram()
    if option == "iptables":
        return IptablesBackend()
    if option == "none":
        return RemovingBackend(NftablesBackend(nft)) if _installed(nft) else None
    _probe(nft, option)
    return NftablesBackend(nft)


def _installed(nft: NftProgram) -> bool:
    try:
        nft.check("")
    except NftMissingError:
        return False
    except NftError:
        return True
    return True


def _probe(nft: NftProgram, option: Option) -> None:
    """Let the kernel judge a whole scratch table, as knftables does when it starts; nothing is made."""
    try:
        nft.check(replacement(DnatDesired(), table=_SCRATCH))
    except NftPermissionError:
        return
    except NftError as error:
        raise ApplyError(
            f"dnat.backend: {option}: this kernel can't do DNAT in an inet table of nftables; no DNAT "
            "rule was changed. It takes Linux 5.2 or newer with the modules nf_tables, nft_chain_nat and "
            f"nft_nat (modprobe them on the host), or dnat.backend: none.\n  {error}"
        ) from error
