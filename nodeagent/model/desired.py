"""The desired state of the node, and the reasons: the planner's result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork
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


@dataclass(frozen=True, slots=True)
class DnatRules:
    """What DNAT does on a node: the redirects, the pods they apply to besides the node, and the guard.

    The guard drops what arrives for a `guarded` range over any interface but lo, unless it comes from an
    `admitted` one. In a family without redirects `pods` mean nothing, in one without `guarded` ranges
    `admitted` means nothing; without either, there are no rules at all and the value is false.
    """

    redirects: tuple[Redirect, ...] = ()
    pods: tuple[IPNetwork, ...] = ()
    guarded: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.redirects or self.guarded)


NO_RULES = DnatRules()


class HostsLine(Struct, frozen=True):
    """One `address name` line of the managed block."""

    address: IPAddress
    name: str


class Verdict(StrEnum):
    """The decision on a load balancer or a hostname."""

    SERVED = "served"
    """It is, or will be, served on the node."""
    SKIPPED = "skipped"
    """Nothing needs to be done for it, or someone decided so."""
    REFUSED = "refused"
    """It claims something that must not or can't be done: an administrator should check it."""


@dataclass(frozen=True, slots=True)
class LoadBalancerDecision:
    """One load balancer: the decision and the reason, in the words that every output shows.

    `code` is the reason's stable short name, for machines. `relay_addresses` are what its hostnames point at:
    its own on this node, or the ClusterIPs of an existing relay Service. `remarks` are notes on parts of it:
    a UDP port that is ignored, an invalid address. `uid` is the Service's, by which Events find it. `taken`
    are the notes about ports that another program of this node holds, which may end.
    """

    load_balancer: ObjectRef
    verdict: Verdict
    code: str
    reason: str
    addresses: tuple[IPAddress, ...] = ()
    relay_addresses: tuple[IPAddress, ...] = ()
    remarks: tuple[str, ...] = ()
    uid: str = ""
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameDecision:
    """One hostname that an object claims: the decision and the reason.

    `by_dns`: only DNS can decide it, so it is looked up. `among` are the addresses that matter in the answer
    in addition to those of `load_balancer`: those of others among which DNS chooses. `gist` is the reason
    without what differs between nodes or between answers of DNS; empty if that is the reason itself.
    """

    name: str
    claimed_by: ObjectRef
    load_balancer: ObjectRef | None
    verdict: Verdict
    code: str
    reason: str
    by_dns: bool = False
    gist: str = ""
    among: frozenset[IPAddress] = frozenset()


@dataclass(frozen=True, slots=True)
class DnsQuestion:
    """A hostname that DNS decides: the addresses that matter in an answer, and the namespace that claims it.

    The addresses are those of each load balancer that claims the hostname, and the relay's; `claimed_by` has
    the hostname, and the namespace is its own. If a question changes, it is asked again at once.
    """

    matter: frozenset[IPAddress]
    namespace: str = ""
    claimed_by: ObjectRef | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of this node, in a fixed order, with the reason of each decision.

    In `dnat`, the admitted ranges are those of the node's own pods, redirected or not: CoreDNS may answer
    them with relay addresses. `questions` are the hostnames that only DNS can decide: no others are ever
    looked up.
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
