"""The nftables backend: read, compare and change the table `inet nodeagent`, and no other. EFFECTS by nft."""

from nodeagent.appliers.dnat.delta import difference, normalised
from nodeagent.appliers.dnat.interface import DnatChange, DnatDesired, DnatState, NotConverged, Transaction
from nodeagent.appliers.dnat.nft_hold import hold
from nodeagent.appliers.dnat.nft_listing import state_of
from nodeagent.appliers.dnat.nft_program import NftPermissionError, NftProgram
from nodeagent.appliers.dnat.nft_script import TABLE, removal, replacement, script


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
            ApplyError: no nft, or a listing that nobody can read.
        """
        try:
            listing = self._program.list_table()
        except NftPermissionError:
            return DnatState(
                unreadable=f"the table inet {TABLE} can't be read without root or CAP_NET_ADMIN: "
                "shown is what would be written if it did not stand"
            )
        return DnatState() if listing is None else state_of(listing)

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:
        """The step from `before` to `desired`; see `DnatBackend.transaction`. PURE.

        Raises:
            ApplyError: `desired` contradicts itself.
        """
        wanted = normalised(desired)
        change = difference(before, wanted)
        return Transaction(change, script(change, wanted), wanted)

    def check(self, transaction: Transaction) -> None:
        """Let the kernel judge the transaction and make nothing; see `DnatBackend.check`.

        Raises:
            ApplyError: it would be refused.
        """
        if transaction:
            self._program.check(transaction.text)

    def run(self, transaction: Transaction) -> None:
        """Apply the transaction and read back; see `DnatBackend.run`.

        Raises:
            ApplyError: it was refused; everything stands as before.
            NotConverged: it was accepted, but something else stands now.
        """
        if not transaction:
            return
        self._program.run(transaction.text)
        if left := difference(self.read(), transaction.desired):
            raise NotConverged(
                f"nft accepted the transaction, but the table inet {TABLE} is not as it was meant to be: "
                "another program changes it too, or this nft writes something else than it was told. "
                f"What still differs:\n{left}"
            )

    def hold(self, desired: DnatDesired) -> None:
        """Redirect nothing, and hold back new connections that are to be redirected; see nft_hold.py.

        Args:
            desired: What is about to stand, here or in another backend.

        Raises:
            ApplyError: it was refused; everything stands as before.
        """
        self._program.run(hold(normalised(desired)))

    def put(self, desired: DnatDesired) -> None:
        """Make it stand whatever stands now. Errors as in `run`."""
        wanted = normalised(desired)
        self.run(Transaction(DnatChange("rebuild"), replacement(wanted) if wanted else removal(), wanted))
