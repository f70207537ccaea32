"""Stands where there is no DNAT backend although one is wanted, until there is."""

from collections.abc import Callable

from nodeagent.appliers.dnat.interface import DnatBackend, DnatDesired, DnatState, Transaction
from nodeagent.errors import ApplyError


class AwaitedBackend:
    """Implements `interface.DnatBackend` by one that does not work yet: a module may still be loaded.

    Each reading looks for it again. Until it is found every call raises ApplyError with what is missing, so
    that it is told like any other applier's failure and the others go on.

    Args:
        name: The option `dnat.backend`.
        find: Gives the backend, or raises ApplyError.
    """

    def __init__(self, name: str, find: Callable[[], DnatBackend]) -> None:
        self._option = name
        self._find = find
        self._found: DnatBackend | None = None

    @property
    def name(self) -> str:
        """The backend's name once there is one; before, the option's."""
        return self._found.name if self._found else self._option

    def read(self) -> DnatState:
        """What stands. Raises ApplyError while there is no backend."""
        return self._backend().read()

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:
        """The step from `before` to `desired`. Raises ApplyError while there is no backend."""
        return self._backend().transaction(before, desired)

    def check(self, transaction: Transaction) -> None:
        """Let the kernel judge the transaction. Raises ApplyError while there is no backend."""
        self._backend().check(transaction)

    def run(self, transaction: Transaction) -> None:
        """Apply the transaction. Raises ApplyError while there is no backend."""
        self._backend().run(transaction)

    def _backend(self) -> DnatBackend:
        if self._found is None:
            self._found = self._find()
        return self._found


def found_or_awaited(name: str, find: Callable[[], DnatBackend]) -> DnatBackend:
    """The backend that `find` gives now, or what stands for it until it does."""
    try:
        return find()
    except ApplyError:
        return AwaitedBackend(name, find)
