"""Stands where there is no DNAT backend: because none is wanted, or because none works here."""

from nodeagent.appliers.dnat.interface import DnatChange, DnatDesired, DnatState, Transaction
from nodeagent.errors import ApplyError


class AbsentBackend:
    """Implements `interface.DnatBackend` where nothing of ours can stand.

    Args:
        name: The option `dnat.backend` that led here.
        failure: Why there is no backend although one is wanted; every call then raises it as ApplyError, so
            that it is told like any other applier's failure and the others go on. Empty: none is wanted.
    """

    def __init__(self, name: str, failure: str = "") -> None:
        self.name = name
        self._failure = failure

    def read(self) -> DnatState:
        """Nothing stands. Raises ApplyError where a backend is wanted."""
        self._fail()
        return DnatState()

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:  # noqa: ARG002
        """Nothing is to do. Raises ApplyError where a backend is wanted."""
        self._fail()
        return Transaction(DnatChange(), "", DnatDesired())

    def check(self, transaction: Transaction) -> None:  # noqa: ARG002 - the interface's
        """Nothing is to check. Raises ApplyError where a backend is wanted."""
        self._fail()

    def run(self, transaction: Transaction) -> None:  # noqa: ARG002 - the interface's
        """Nothing is to run. Raises ApplyError where a backend is wanted."""
        self._fail()

    def _fail(self) -> None:
        if self._failure:
            raise ApplyError(self._failure)
