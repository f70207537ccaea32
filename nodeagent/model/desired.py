"""The planner's result: the desired state of the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_network

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, Family, IPAddress, IPNetwork
from nodeagent.model.decisions import LoadBalancerDecision, NameDecision
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


class RuleOptions(Struct, frozen=True):
    """Those options of the section `dnat` that the rules are made with, by their names; described there."""

    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DnatRules:
    """What DNAT does on a node: the redirects, the pods they apply to besides the node, and the guard.

    The guard drops what arrives for a `guarded` range over any interface but lo, unless it comes from an
    `admitted` one. It also drops what another program's translation leads there, that is, what was sent
    neither to such a range nor to one of `balancers`, the addresses of the redirects. And it drops new
    connections to a `guarded` range of the node's users but root, beyond `users` of a family; 0: no limit.
    With a limit, they also have no more than `PROBED_USERS` to each of the `probed` ports of loopback, where
    the kubelet looks if agent and relay are alive. `leaving`: the guard stays, as it is, until the rest is
    removed as well.

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
    options: RuleOptions = field(default_factory=RuleOptions)
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


class HostsLine(Struct, frozen=True, gc=False):
    """One `address name` line of the managed block."""

    address: IPAddress
    name: str


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
