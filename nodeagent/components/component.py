"""The protocol of the four components of a node: addresses, relay, DNAT, hosts.

Nothing ever points at something that does not exist yet or no longer exists: first all components add, in one
order, and keep what they have; then they remove in reverse.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeVar

from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired

ComponentName = Literal["addresses", "relay", "dnat", "hosts"]
COMPONENTS: tuple[ComponentName, ...] = ("addresses", "relay", "dnat", "hosts")
"""In the order in which they add: each may point only at what the earlier ones provide."""
PROVIDERS: tuple[ComponentName, ...] = ("addresses", "relay")
"""Those that provide what the others point at."""
TITLES: Mapping[ComponentName, str] = {
    "addresses": "Relay addresses",
    "relay": "Relay (HAProxy)",
    "dnat": "DNAT",
    "hosts": "Hosts file",
}


class State(Protocol):
    """The actual state of one component."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What else a person should know: what could not be read, what is damaged, what is old."""

    @property
    def unreadable(self) -> str:
        """Why this user can't read it, so that it counts as empty."""


class Diff(Protocol):
    """The difference between the actual and the desired state; false if there is none. A base class.

    As a `str`, it says what is done, a line each; what is removed begins with "- ".
    """

    def __bool__(self) -> bool: ...

    @property
    def text(self) -> str:
        """All of it as a person can check it: a transaction, a diff of files."""
        return str(self)

    @property
    def how(self) -> str:
        """How it is applied, for example "nftables transaction"."""
        return ""

    @property
    def problem(self) -> str:
        """What of the desired state can't be reached and why, for a person."""
        return ""

    @property
    def displaced(self) -> bool:
        """Whether it only moves nodeagent's rules before another program's again."""
        return False

    @property
    def repairs(self) -> bool:
        """Whether it undoes what another program did, if the same was desired before."""
        return True


class Watch(Protocol):
    """Notifications that something may have changed a component. Used by one thread."""

    @property
    def seconds(self) -> float:
        """After how long to drain it again even if nothing arrives; infinite if that is never needed."""

    def fileno(self) -> int:
        """Return the descriptor to poll for reading; -1 if there is nothing to wait for now."""

    def drain(self) -> str:
        """Return at once what has arrived, for a person. Raises OSError if it broke, or some was lost."""

    def close(self) -> None:
        """Stop watching."""


StateT = TypeVar("StateT", bound=State)
DiffT = TypeVar("DiffT", bound=Diff)


class Component(Protocol[StateT, DiffT]):
    """One component of the node. A base class: what has a body below is right for most of them."""

    def read(self) -> StateT:
        """Read the actual state. Raises ApplyError if it can't be read."""

    def diff(self, actual: StateT, desired: Desired, *, keep: bool = False) -> DiffT:
        """Return the difference from `actual` to `desired`. Pure.

        With `keep`, what others may point at is added, altered and repaired, but not removed. Raises
        ApplyError if nothing can lead to the desired state.
        """

    def apply(self, diff: DiffT) -> str:
        """Apply a difference; return what of it was not applied and why, for a person. Idempotent.

        Raises ApplyError if it was not applied; the text says what is there now.
        """

    def watch(self) -> Watch:
        """Return notifications of what other programs do to it. Raises OSError if the kernel gives none."""

    def reserve(self, desired: Desired) -> None:  # noqa: ARG002 - for one that has something to keep
        """Keep for this process what the desired state needs and another program could take. Idempotent."""
        return

    def ready(self, actual: StateT, desired: Desired) -> Mapping[Endpoint, str]:  # noqa: ARG002 - see `PROVIDERS`
        """Return the endpoints of listeners of which this component's part works, each with its health."""
        return dict.fromkeys((listener.bind for listener in desired.listeners), "")

    def leave(self) -> None:
        """Remove what is left when nothing is desired any more, and release what is reserved. Idempotent."""
        return
