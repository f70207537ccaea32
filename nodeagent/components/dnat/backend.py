"""What every DNAT backend offers: the kernel's machinery for the rules, read and changed."""

from typing import Protocol

from nodeagent.components.dnat.state import DnatChange, DnatState
from nodeagent.errors import ApplyError


class NotConverged(ApplyError):  # noqa: N818 - it names what is the case, as the design does
    """A change was accepted, yet the kernel does not hold what was asked for."""


class DnatBackend(Protocol):
    """One kernel machinery that translates destinations (nftables, legacy iptables)."""

    @property
    def name(self) -> str:
        """The name of the option `dnat.backend` that means this backend."""

    def read(self) -> DnatState:
        """Read the actual state; a missing permission is a state with `unreadable` set, not an error.

        Raises:
            ApplyError: the machinery is missing or does not answer.
        """

    def script(self, change: DnatChange) -> str:
        """Return the change as the backend runs it, one transaction; empty when nothing is to do. Pure."""

    def run(self, change: DnatChange) -> DnatState:
        """Apply the change, all of it or nothing, and return the state read back.

        Idempotent in effect: the same step, read and made again, does nothing.

        Raises:
            ApplyError: it was refused; everything is as before.
            NotConverged: it was accepted, but the kernel holds something else now.
            PartlyAppliedError: one address family can't be served on this node; nothing of ours is there.
        """
