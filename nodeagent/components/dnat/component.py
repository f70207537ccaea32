"""DNAT as a component of the node, on whichever backend the configuration and the kernel allow."""

from contextlib import suppress
from typing import Literal

from nodeagent.components.component import ComponentName, Preview
from nodeagent.components.dnat.backend import DnatBackend
from nodeagent.components.dnat.change import DnatChange, DnatState, difference
from nodeagent.components.dnat.selection import Option, choose
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired


class Dnat:
    """Implements `component.Component`.

    A backend that is not available is looked for again by each reading: a module may still be loaded. Until
    it is found, every reading raises ApplyError with what is missing.

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
        """The name of the backend in effect; the option, while there is none or none is wanted."""
        if self._found is None or self._option == "none":
            return self._option
        return "nftables" if self._found.name == "nftables" else "iptables"

    def read(self) -> DnatState:
        """Read the actual state; see `DnatBackend.read`."""
        return self._backend().read()

    def diff(self, actual: DnatState, desired: Desired) -> DnatChange:
        """Return what leads to the desired rules. Pure.

        Raises:
            ApplyError: they contradict themselves.
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
        """Apply the whole change in one transaction; after `grow` only removals are left of it."""
        return self._backend().run(change) if change else change.before

    def _backend(self) -> DnatBackend:
        if self._found is None:
            self._found = choose(self._option)
        return self._found
