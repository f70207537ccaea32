"""What every DNAT backend provides: reading and changing the kernel's rules."""

from typing import Protocol

from nodeagent.components.dnat.state import DnatChange, DnatState
from nodeagent.errors import ApplyError


class NotConverged(ApplyError):  # noqa: N818 - it names what is the case, as the design does
    """A change was accepted, but the kernel does not have the requested rules."""


class DnatBackend(Protocol):
    """One kernel machinery that translates destinations (nftables, legacy iptables)."""

    @property
    def name(self) -> str:
        """The value of the option `dnat.backend` that means this backend."""

    def read(self) -> DnatState:
        """Read the actual state; a missing permission is a state with `unreadable` set, not an error.

        Raises:
            ApplyError: the machinery is missing or does not answer.
        """

    def script(self, change: DnatChange) -> str:
        """Return the change as the backend runs it, one transaction; empty for no change. Pure."""

    def run(self, change: DnatChange) -> DnatState:
        """Apply the change, all of it or nothing, and return the state read back.

        Idempotent in effect: the same step, computed and made again, does nothing.

        Raises:
            ApplyError: it was rejected; everything is as before.
            NotConverged: it was accepted, but the kernel has other rules now.
            PartlyAppliedError: one address family can't be served on this node; it has none of nodeagent's
                rules.
        """
