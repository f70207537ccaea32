"""The protocol of the four components of a node: addresses, relay, DNAT, hosts.

A pass, `plan`, `status`, `cleanup`, drift and metrics are loops over components. Each reads its actual state,
compares it with the desired state, and applies the difference in two halves, so that nothing ever points at
something that does not exist yet or no longer exists: first all components grow, in one order, then they
shrink in reverse.
"""

from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired

ComponentName = Literal["addresses", "relay", "dnat", "hosts"]
COMPONENTS: tuple[ComponentName, ...] = ("addresses", "relay", "dnat", "hosts")
"""In the order in which they grow: each may point only at what the earlier ones provide."""


class PartlyAppliedError(ApplyError):
    """A half of a change was applied only in part: the text says what was not and why.

    Args:
        reason: What was not applied, for a person.
        state: The actual state that it left.
        applied: What was applied, for a person; empty for nothing.
    """

    def __init__(self, reason: str, state: "State", applied: str = "") -> None:
        super().__init__(reason)
        self.state = state
        self.applied = applied


class State(Protocol):
    """The actual state of one component."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What else a person should know: what could not be read, what is damaged, what is old."""


class Change(Protocol):
    """The difference between the actual and the desired state; printable, false if there is none.

    `growth` and `shrinkage` are what the halves do, for a person; empty if a half does nothing.
    """

    @property
    def before(self) -> State:
        """The actual state from which it starts."""

    @property
    def growth(self) -> str:
        """What the first half adds, alters and repairs."""

    @property
    def shrinkage(self) -> str:
        """What the second half removes."""

    def __bool__(self) -> bool: ...


class Preview(Struct, frozen=True):
    """What would be done, as exactly as a person can read it, and how: for example, "nftables transaction".

    `is_diff`: its lines begin with +, - or !.
    """

    text: str
    how: str = ""
    is_diff: bool = True


StateT = TypeVar("StateT", bound=State)
ChangeT = TypeVar("ChangeT", bound=Change)


class Component(Protocol[StateT, ChangeT]):
    """One component of the node."""

    @property
    def name(self) -> ComponentName:
        """The component's name, as reports and metrics show it."""

    def read(self) -> StateT:
        """Read the actual state; change nothing.

        Raises:
            ApplyError: it can't be read.
        """

    def diff(self, actual: StateT, desired: Desired) -> ChangeT:
        """Return the change from `actual` to `desired`. Pure.

        Raises:
            ApplyError: no change can lead to the desired state.
        """

    def preview(self, change: ChangeT) -> Preview:
        """Return what both halves would do. Pure."""

    def grow(self, change: ChangeT) -> StateT:
        """Apply the part of the change that adds, alters and repairs; return the state it left. Idempotent.

        If there is nothing to do, that is the state before.

        Raises:
            PartlyAppliedError: only a part could be applied.
            ApplyError: it could not be applied; the text says what is there now.
        """

    def shrink(self, change: ChangeT) -> StateT:
        """Apply the rest of the change, all that removes; return the state it left. Idempotent.

        Raises:
            PartlyAppliedError: only a part could be applied.
            ApplyError: it could not be applied; the text says what is there now.
        """
