"""The protocol of the four components of a node: addresses, relay, DNAT, hosts.

A pass, `plan`, `status`, `cleanup`, drift and metrics are loops over components. Each reads its actual state,
compares it with the desired state, and applies the difference in two halves, so that nothing ever points at
something that does not exist yet or no longer exists: first all components grow, in one order, then they
shrink in reverse.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired

ComponentName = Literal["addresses", "relay", "dnat", "hosts"]
COMPONENTS: tuple[ComponentName, ...] = ("addresses", "relay", "dnat", "hosts")
"""In the order in which they grow: each may point only at what the earlier ones provide."""
TITLES: Mapping[ComponentName, str] = {
    "addresses": "Relay addresses",
    "relay": "Relay (HAProxy)",
    "dnat": "DNAT",
    "hosts": "Hosts file",
}
"""Their names for a person."""


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


class Preview(Struct, frozen=True):
    """What would be done, as a person can read it, and how: for example, "nftables transaction"."""

    text: str
    how: str = ""


StateT = TypeVar("StateT", bound=State)
StateT_co = TypeVar("StateT_co", bound=State, covariant=True)
DetailT_co = TypeVar("DetailT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Half(Generic[StateT_co]):
    """One half of a change.

    `text` is what it does, for a person; empty for nothing. `apply` does it, and returns the state it left.
    It is idempotent; it raises PartlyAppliedError if only a part was applied, otherwise ApplyError, whose
    text says what is there now. `displaced`: it only moves nodeagent's rules before another program's again.
    """

    text: str
    apply: Callable[[], StateT_co]
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class Change(Generic[StateT_co, DetailT_co]):
    """The difference between the actual and the desired state; false if there is none.

    `detail` is the difference as a value of the component's own, for reports. `grow` adds, alters and
    repairs, `shrink` removes. `preview` returns what both would do; it is pure.
    """

    detail: DetailT_co
    grow: Half[StateT_co]
    shrink: Half[StateT_co]
    preview: Callable[[], Preview]

    def __bool__(self) -> bool:
        return bool(self.detail)


class Component(Protocol[StateT, DetailT_co]):
    """One component of the node."""

    @property
    def name(self) -> ComponentName:
        """The component's name, as reports and metrics show it."""

    def read(self) -> StateT:
        """Read the actual state; change nothing.

        Raises:
            ApplyError: it can't be read.
        """

    def diff(self, actual: StateT, desired: Desired) -> Change[StateT, DetailT_co]:
        """Return the change from `actual` to `desired`. Pure.

        Raises:
            ApplyError: no change can lead to the desired state.
        """
