"""What is decided of load balancers and hostnames, and the reasons, in the words that every output shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from nodeagent.errors import shortened
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import ObjectRef


class DecisionStatus(StrEnum):
    """The decision on a load balancer or a hostname."""

    SERVED = "served"
    """It is, or will be, served on the node."""
    SKIPPED = "skipped"
    """Nothing needs to be done for it, or someone decided so."""
    REFUSED = "refused"
    """It claims something that must not or can't be done: an administrator should check it."""


# Each hostname has several such values. They are in no cycle, so that the collector need not look at them.
class Conclusion(Struct, frozen=True, gc=False):
    """What is decided of something, and why: `code` is the reason's stable short name.

    `stable_reason` is the reason without what differs between nodes or answers of DNS; empty if that is all.
    """

    status: DecisionStatus
    code: str
    reason: str
    stable_reason: str = ""


_LONGEST = 600
_MOST_NOTES = 32


def bounded(text: str) -> str:
    """Return the text, shortened if it is long: what tenants write is in the reasons of many hostnames."""
    return shortened(text, _LONGEST)


def some_notes(notes: Sequence[str], about: str = "") -> tuple[str, ...]:
    """Return the first of many notes, each bounded, and how many more there are `about` something."""
    more = len(notes) - _MOST_NOTES
    return (*map(bounded, notes[:_MOST_NOTES]), *((f"and {more} more notes{about}",) if more > 0 else ()))


def served(code: str, reason: str, stable_reason: str = "") -> Conclusion:
    """Return the conclusion that something is, or will be, served on the node."""
    return Conclusion(DecisionStatus.SERVED, code, bounded(reason), stable_reason)


def skipped(code: str, reason: str) -> Conclusion:
    """Return the conclusion that nothing needs to be done, or that someone decided so."""
    return Conclusion(DecisionStatus.SKIPPED, code, bounded(reason))


def refused(code: str, reason: str, stable_reason: str = "") -> Conclusion:
    """Return the conclusion that something must not or can't be done."""
    return Conclusion(DecisionStatus.REFUSED, code, bounded(reason), stable_reason)


class Decision:
    """Has a conclusion, and shows its fields as its own."""

    __slots__ = ()
    conclusion: Conclusion

    @property
    def status(self) -> DecisionStatus:
        """The decision."""
        return self.conclusion.status

    @property
    def code(self) -> str:
        """The reason's short name."""
        return self.conclusion.code

    @property
    def reason(self) -> str:
        """The reason, for a person."""
        return self.conclusion.reason

    @property
    def stable_reason(self) -> str:
        """The reason in words that are the same on all nodes, whatever DNS answers."""
        return self.conclusion.stable_reason or self.conclusion.reason


@dataclass(frozen=True, slots=True)
class LoadBalancerDecision(Decision):
    """What is decided for one load balancer; `uid` is the Service's, by which Events find it.

    `relay_addresses` are what its hostnames point at: its own on this node, or the ClusterIPs of an existing
    relay. `remarks` are notes on parts of it, `taken` those on ports that another program here holds now.
    """

    load_balancer: ObjectRef
    conclusion: Conclusion
    addresses: tuple[IPAddress, ...] = ()
    relay_addresses: tuple[IPAddress, ...] = ()
    remarks: tuple[str, ...] = ()
    uid: str = ""
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameDecision(Decision):
    """One hostname that an object claims, and what is decided on it."""

    name: str
    claimed_by: ObjectRef
    load_balancer: ObjectRef | None
    conclusion: Conclusion
