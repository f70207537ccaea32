"""Stands where a DNAT backend is wanted and none works."""

from typing import NoReturn

from nodeagent.appliers.dnat.interface import DnatDesired, DnatState, Transaction
from nodeagent.errors import ApplyError


class AbsentBackend:
    """Implements `interface.DnatBackend` by raising ApplyError at every call.

    So it is told like any other applier's failure, and the others go on.

    Args:
        name: The option `dnat.backend` that led here.
        failure: Why there is no backend.
    """

    def __init__(self, name: str, failure: str) -> None:
        self.name = name
        self._failure = failure

    def read(self) -> DnatState:
        """Raises ApplyError."""
        self._fail()

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:  # noqa: ARG002
        """Raises ApplyError."""
        self._fail()

    def check(self, transaction: Transaction) -> None:  # noqa: ARG002 - the interface's
        """Raises ApplyError."""
        self._fail()

    def run(self, transaction: Transaction) -> None:  # noqa: ARG002 - the interface's
        """Raises ApplyError."""
        self._fail()

    def _fail(self) -> NoReturn:
        raise ApplyError(self._failure)
