"""The planner's result: the desired state of the node, and the reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, ip_network

from msgspec import Struct

from nodeagent.errors import shortened
from nodeagent.model.addresses import Endpoint, Family, IPAddress, IPNetwork
from nodeagent.model.facts import DnsQuestion
from nodeagent.model.objects import ObjectRef, ProxyVersion, Unreadable


class RelayAddress(Struct, frozen=True):
    """An address that the node holds for one load balancer's relay."""

    address: IPAddress
    load_balancer: ObjectRef


@dataclass(frozen=True, slots=True)
class Listener:
    """One port the relay listens on, and the Service's endpoint it sends to with the PROXY header.

    `proxy` is None for a port on which the load balancer sends no PROXY: passed on as it is.
    """

    bind: Endpoint
    server: Endpoint
    proxy: ProxyVersion | None
    load_balancer: ObjectRef
    node_address: IPAddress | None = None
    """The source address that the PROXY header names for a connection made by the node directly to the relay
    address (by a hosts line): the kernel picks the relay address itself as the source."""


class Redirect(Struct, frozen=True):
    """A DNAT entry: connections to `match` (the load balancer) are sent to `to` (the relay)."""

    match: Endpoint
    to: Endpoint
    load_balancer: ObjectRef


HEALTH = Endpoint(IPv4Address("127.0.0.1"), 9468)
"""Where a relay pod's HAProxy answers the kubelet's liveness probe (daemonset/base/relay.yaml)."""
PROBED_USERS = 32
"""Half of the connections that wait for the agent, so that a probe always finds a place among them."""
LOOPBACK: Mapping[Family, IPNetwork] = {4: ip_network("127.0.0.0/8"), 6: ip_network("::1")}


@dataclass(frozen=True, slots=True)
class DnatRules:
    """What DNAT does on a node: the redirects, the pods they apply to besides the node, and the guard.

    The guard drops what arrives for a `guarded` range over any interface but lo, unless it comes from an
    `admitted` one. It also drops what another program's translation leads there, that is, what was sent
    neither to such a range nor to one of `balancers`, the addresses of the redirects. And it drops new
    connections to a `guarded` range of the node's users but root, beyond `users` of a family; 0: no limit.
    With a limit, they also have no more than `PROBED_USERS` to each of the `probed` ports of loopback: those
    where the kubelet looks if agent and relay are alive, and ends what does not answer.

    Connections of pods count only if they arrive on `interfaces`, or on any if there are none; `*` at the end
    of a name matches any rest of it. `leaving`: the guard stays, as it is, until the rest is removed as well.

    In a family without redirects `pods` mean nothing, in one without `guarded` ranges `admitted` and
    `balancers` mean nothing; without either, there are no rules at all and the value is false.
    """

    redirects: tuple[Redirect, ...] = ()
    pods: tuple[IPNetwork, ...] = ()
    guarded: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    balancers: tuple[IPNetwork, ...] = ()
    users: int = 0
    probed: tuple[int, ...] = ()
    interfaces: tuple[str, ...] = ()
    leaving: bool = False

    def __bool__(self) -> bool:
        return bool(self.redirects or self.guarded)

    @property
    def ranges(self) -> Mapping[str, tuple[IPNetwork, ...]]:
        """The ranges of each kind, by its name."""
        return {
            "pods": self.pods,
            "guarded": self.guarded,
            "admitted": self.admitted,
            "balancers": self.balancers,
        }


NO_RULES = DnatRules()


class HostsLine(Struct, frozen=True):
    """One `address name` line of the managed block."""

    address: IPAddress
    name: str


class DecisionStatus(StrEnum):
    """The decision on a load balancer or a hostname."""

    SERVED = "served"
    """It is, or will be, served on the node."""
    SKIPPED = "skipped"
    """Nothing needs to be done for it, or someone decided so."""
    REFUSED = "refused"
    """It claims something that must not or can't be done: an administrator should check it."""


class Conclusion(Struct, frozen=True):
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


@dataclass(frozen=True, slots=True)
class Desired:
    """All parts in a fixed order; `only_adds`: nothing is removed, as not all of the cluster is read yet.

    In `dnat`, the admitted ranges are those of the node's own pods, redirected or not: CoreDNS may answer
    them with relay addresses. `questions` are the hostnames that only DNS can decide.
    """

    addresses: tuple[RelayAddress, ...] = ()
    listeners: tuple[Listener, ...] = ()
    dnat: DnatRules = NO_RULES
    hosts: tuple[HostsLine, ...] = ()
    load_balancers: tuple[LoadBalancerDecision, ...] = ()
    names: tuple[NameDecision, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    remarks: tuple[str, ...] = ()
    questions: Mapping[str, DnsQuestion] = field(default_factory=dict)
    only_adds: bool = False

    @property
    def undetermined(self) -> tuple[Unreadable, ...]:
        """Those of the unreadable that may hide more than themselves."""
        return tuple(entry for entry in self.unreadable if entry.decisive)
