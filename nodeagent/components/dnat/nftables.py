"""The nftables backend: read, compare and change the table `inet nodeagent`, and no other. Effects by nft."""

from dataclasses import replace

from nodeagent.components.dnat.backend import NotConverged
from nodeagent.components.dnat.change import DnatChange, DnatState, difference, normalised
from nodeagent.components.dnat.nft_hold import hold
from nodeagent.components.dnat.nft_listing import state_of
from nodeagent.components.dnat.nft_program import NftPermissionError, NftProgram
from nodeagent.components.dnat.nft_script import TABLE, removal, replacement
from nodeagent.components.dnat.nft_script import script as nft_script
from nodeagent.model.desired import DnatRules


class NftablesBackend:
    """Implements `interface.DnatBackend` on the nft program.

    Args:
        program: How nft is run.
    """

    name = "nftables"

    def __init__(self, program: NftProgram | None = None) -> None:
        self._program = program or NftProgram()

    def read(self) -> DnatState:
        """Read the table; see `DnatBackend.read`.

        Raises:
            ApplyError: no nft, or a listing that can't be understood.
        """
        try:
            listing = self._program.list_table()
        except NftPermissionError:
            return DnatState(
                unreadable=f"the table inet {TABLE} can't be read without root or CAP_NET_ADMIN: this shows "
                "what would be written if it did not exist"
            )
        return DnatState() if listing is None else state_of(listing)

    def script(self, change: DnatChange) -> str:
        """Return the transaction as `nft -f -` takes it; see `DnatBackend.script`. Pure."""
        return nft_script(change)

    def run(self, change: DnatChange) -> DnatState:
        """Apply the change and read back; see `DnatBackend.run`.

        Raises:
            ApplyError: it was refused; everything is as before.
            NotConverged: it was accepted, but the table holds something else now.
        """
        if not change:
            return change.before
        state = self._run(nft_script(change), change.desired)
        return replace(state, transactions=change.before.transactions + 1)

    def hold(self, desired: DnatRules) -> None:
        """Redirect nothing, and hold back new connections that are to be redirected; see nft_hold.py.

        Args:
            desired: The rules about to be made, here or in another backend.

        Raises:
            ApplyError: it was refused; everything is as before.
        """
        self._program.run(hold(normalised(desired)))

    def put(self, desired: DnatRules) -> DnatState:
        """Make the rules whatever is there now, and return the state read back. Errors as in `run`."""
        wanted = normalised(desired)
        text = replacement(wanted) if wanted else removal()
        return self._run(text, wanted)

    def _run(self, text: str, desired: DnatRules) -> DnatState:
        self._program.run(text)
        state = self.read()
        if left := difference(state, desired):
            raise NotConverged(
                f"nft accepted the transaction, but the table inet {TABLE} is not in the desired state: "
                "another program changes it, too, or this nft does not write what it was given. What still "
                f"differs:\n{left}"
            )
        return state
