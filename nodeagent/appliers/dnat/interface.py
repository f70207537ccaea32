"""What every DNAT backend offers, and the values that go in and out. PURE but for the backends themselves.

A pass over a backend reads:

    state = backend.read()
    grow = backend.transaction(state, grown(state, desired))      # additions, changes, repair
    backend.run(grow)
    shrink = backend.transaction(backend.read(), desired)         # what is left to remove
    backend.run(shrink)

with `grown` and `kept` from delta.py. A transaction towards `DnatDesired()` removes every trace. A
transaction with nothing to do is false and running it does nothing.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.desired import Redirect


class NotConverged(ApplyError):  # noqa: N818 - it names what is the case, as the design does
    """A transaction was accepted, yet what stands afterwards is not what was asked for."""


class FamilyUnavailableError(ApplyError):
    """One address family can't be served on this node: nothing of ours stands there, the other is served.

    Args:
        reason: What is missing.
        applied: What was done for the other family, for a person; empty when nothing was to do.
    """

    def __init__(self, reason: str, applied: str) -> None:
        super().__init__(reason)
        self.applied = applied


@dataclass(frozen=True, slots=True)
class DnatDesired:
    """What shall stand: the redirects, whose pods they hold for besides the node itself, and the guard.

    The guard drops what arrives for a `guarded` range over any interface but lo, unless it comes from an
    `admitted` one. In a family without redirects `pod_cidrs` mean nothing, in one without `guarded` ranges
    `admitted` means nothing; without either, nothing shall stand at all.
    """

    redirects: tuple[Redirect, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()
    guarded: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.redirects or self.guarded)


@dataclass(frozen=True, slots=True)
class DnatState:
    """What stands in the kernel.

    `load_balancer` of a redirect read back is what its comment tells. Ranges are as they stand, uncollapsed.
    `damage` says, one phrase each, what of the fixed structure (chains, rules, priorities, types) is not as
    the agent makes it; empty means intact. `obstructed` is true when the damage is something that stands in
    the way, rather than something that lacks; `displaced`, when it is no more than other programs' rules
    that came to stand before ours. `unreadable` is the reason why nothing could be read, empty when it was.
    `superseded` is what stands besides of the other backend, left by another configuration.
    """

    redirects: tuple[Redirect, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()
    guarded: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    present: bool = False
    damage: tuple[str, ...] = ()
    obstructed: bool = False
    displaced: bool = False
    unreadable: str = ""
    superseded: "DnatState | None" = None


@dataclass(frozen=True, slots=True)
class RedirectChange:
    """An entry that stays, for another relay address or on behalf of another Service."""

    before: Redirect
    after: Redirect


Action = Literal["none", "create", "alter", "repair", "rebuild", "delete", "supersede"]


@dataclass(frozen=True, slots=True)
class DnatChange:
    """What has to happen, for a person; true when that is anything.

    `alter` touches entries alone, `repair` writes the rules anew beside that, `create` and `rebuild` the
    whole structure with every entry, `delete` removes the structure with all that is in it; `supersede` does
    no more than take away what another backend, which `superseded` names, has left. `damage` tells the
    reasons for a repair or rebuild. `displaced` marks a repair that does no more than put ours before
    other programs' rules again: nothing of ours had been undone.
    """

    action: Action = "none"
    added: tuple[Redirect, ...] = ()
    removed: tuple[Redirect, ...] = ()
    changed: tuple[RedirectChange, ...] = ()
    pods_added: tuple[IPNetwork, ...] = ()
    pods_removed: tuple[IPNetwork, ...] = ()
    guarded_added: tuple[IPNetwork, ...] = ()
    guarded_removed: tuple[IPNetwork, ...] = ()
    admitted_added: tuple[IPNetwork, ...] = ()
    admitted_removed: tuple[IPNetwork, ...] = ()
    damage: tuple[str, ...] = ()
    displaced: bool = False
    superseded: str = ""

    def __bool__(self) -> bool:
        return self.action != "none"

    def __str__(self) -> str:
        lines = [f"! {self.action}: {reason}" for reason in self.damage]
        lines += [f"- {_line(redirect)}" for redirect in self.removed]
        lines += [f"~ {_line(change.before)} => {_line(change.after)}" for change in self.changed]
        lines += [f"+ {_line(redirect)}" for redirect in self.added]
        lines += [f"- pods {network}" for network in self.pods_removed]
        lines += [f"+ pods {network}" for network in self.pods_added]
        lines += [f"- guard {network}" for network in self.guarded_removed]
        lines += [f"+ guard {network}" for network in self.guarded_added]
        lines += [f"- admitted to the relay {network}" for network in self.admitted_removed]
        lines += [f"+ admitted to the relay {network}" for network in self.admitted_added]
        if self.action == "delete":
            lines.append("- the DNAT structure")
        if self.superseded:
            lines.append(f"- all that the backend {self.superseded} has left")
        if self.action == "create":
            lines.insert(0, "+ the DNAT structure")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One atomic step: `text` as the backend runs it, and the state that it leads to.

    Printable, checkable (`DnatBackend.check`) and runnable (`DnatBackend.run`); false when nothing is to do.
    """

    change: DnatChange
    text: str
    desired: DnatDesired

    def __bool__(self) -> bool:
        return bool(self.change)

    def __str__(self) -> str:
        return self.text


class DnatBackend(Protocol):
    """One kernel machinery that translates destinations (nftables, legacy iptables)."""

    @property
    def name(self) -> str:
        """The name of the option `dnat.backend` that means this backend."""

    def read(self) -> DnatState:
        """Read what stands; want of permission is a state with `unreadable` set, not an error.

        Raises:
            ApplyError: the machinery is missing or does not answer.
        """

    def transaction(self, before: DnatState, desired: DnatDesired) -> Transaction:
        """The step from `before` to `desired`. PURE.

        Raises:
            ApplyError: `desired` contradicts itself (two relays for one endpoint, mixed families).
        """

    def check(self, transaction: Transaction) -> None:
        """Let the kernel judge the transaction without applying it.

        Raises:
            ApplyError: it would be refused.
        """

    def run(self, transaction: Transaction) -> None:
        """Apply the transaction, all of it or nothing, and read back what stands.

        Idempotent in effect: a transaction read, made and run again is empty.

        Raises:
            ApplyError: it was refused; everything stands as before.
            NotConverged: it was accepted, but something else stands now.
            FamilyUnavailableError: it was applied as far as it concerns the other family.
        """


def _line(redirect: Redirect) -> str:
    return f"{redirect.match} -> {redirect.to} ({redirect.load_balancer})"
