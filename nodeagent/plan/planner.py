"""The complete decision, made of the decisions in the other modules."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, canonical
from nodeagent.model.desired import HEALTH, Desired, DnatRules, RelayAddress, RuleOptions
from nodeagent.model.facts import DnsQuestion, Facts
from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlanner
from nodeagent.plan.balancers.this_node import pod_ranges
from nodeagent.plan.names.conditions import lines_now
from nodeagent.plan.names.hostname_decisions import HostnamePlanner
from nodeagent.plan.names.matching import ClaimPlanner


class Planner:
    """Decides, and remembers its last decisions: what has not changed since is not decided again.

    The result depends on the input alone. For two equal decisions, it returns the same object, so that others
    find changes as cheaply. `standing` and `standing_at` are facts of the next plan.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._forget()
        self.standing: Mapping[str, frozenset[IPAddress]] = {}
        self.standing_at: Mapping[IPAddress, ObjectRef] = {}

    def _forget(self) -> None:
        self._load_balancers = LoadBalancerPlanner(self._config)
        self._claims = ClaimPlanner(self._config.limits, self._config.load_balancers.ingress_classes)
        self._hostnames = HostnamePlanner(self._config)

    def plan(self, snapshot: Snapshot, facts: Facts) -> Desired:
        """Return the desired state of the node; the same input in any order gives an equal value."""
        try:
            return self._decided(snapshot, facts)
        except BaseException:
            # The agent goes on, and only some steps remember this pass: what they know no longer fits.
            self._forget()
            raise

    def _decided(self, snapshot: Snapshot, facts: Facts) -> Desired:
        config = self._config
        if snapshot.node is not None:  # none of its names is ever written
            facts = replace(facts, node_names=facts.node_names | {*map(canonical, snapshot.node.names)})
        plans = self._load_balancers.plan(snapshot, facts)
        claims, notes = self._claims.plan(snapshot, plans)
        hostnames = self._hostnames.plan(claims, lines_now(facts, plans))
        self.standing = hostnames.standing
        self.standing_at = {address: plan.service.ref for plan in plans for address in plan.hosts_addresses}
        questions = {  # what to ask DNS about load balancers' own hostnames
            name: DnsQuestion(frozenset(), plan.service.ref.namespace, plan.service.ref, every=True)
            for plan in plans
            for name in plan.own_names
        }
        relays = [plan.relay for plan in plans if plan.relay is not None]
        listeners = tuple(listener for relay in relays for listener in relay.listeners)
        addresses = tuple({RelayAddress(at.bind.address, at.load_balancer): None for at in listeners})
        redirects = tuple(redirect for relay in relays for redirect in relay.redirects)
        pods = pod_ranges(snapshot, facts, config)
        used = {relay_address.address.version for relay_address in addresses}
        # Of the families in use, the relay's whole ranges: no other host may reach what listens there.
        guarded = tuple(cidr for cidr in (config.relay.ipv4, config.relay.ipv6) if cidr.version in used)
        # Where the kubelet's probes arrive: at the relay, and at the agent if it listens.
        probed = {HEALTH.port, *([agent.port] if (agent := config.telemetry.listen.endpoint) else ())}
        return Desired(
            addresses=addresses,
            listeners=listeners,
            dnat=DnatRules(
                redirects if config.dnat.backend != "none" else (),
                pods.redirected,
                guarded,
                pods.admitted if guarded else (),
                users=config.relay.max_connections // _USERS_PART if guarded else 0,
                probed=tuple(sorted(probed)) if guarded else (),
                options=RuleOptions(*(getattr(config.dnat, each) for each in RuleOptions.__struct_fields__)),
            ),
            hosts=hostnames.hosts,
            load_balancers=tuple(plan.decision for plan in plans),
            names=hostnames.names,
            unreadable=tuple(sorted(snapshot.unreadable)),
            remarks=(
                *facts.notes,
                *(pods.remarks if addresses or redirects or hostnames.hosts else ()),
                *_missing_services(snapshot, config),
                *sorted(snapshot.not_covered),
                *_pending(snapshot),
                *(() if config.hosts.enabled or hostnames.names else (_NO_HOSTNAMES,)),
                *sorted(notes),
            ),
            questions={**hostnames.questions, **questions} if questions else hostnames.questions,
            only_adds=bool(snapshot.pending),
        )


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Return the desired state, decided from the beginning. Pure."""
    return Planner(config).plan(snapshot, facts)


_USERS_PART = 32
"""Of the relay's connections, what local users but root get in a family: half of the reserve in both."""
_NO_HOSTNAMES = "hostnames are not looked at: hosts.enabled is false"


def _pending(snapshot: Snapshot) -> Iterator[str]:
    for reason in dict.fromkeys(reason for _, reason in sorted(snapshot.pending.items())):
        names = sorted(name for name, why in snapshot.pending.items() if why == reason)
        yield f"nothing is removed until these kinds were read: {', '.join(names)} ({reason})"


def _missing_services(snapshot: Snapshot, config: Config) -> Iterator[str]:
    listed = config.load_balancers.services
    paths = {service.ref.path for service in snapshot.services} if listed else set()
    for entry in listed:
        if entry.path not in paths:
            near = get_close_matches(entry.path, sorted(paths), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield f"loadBalancers.services lists {entry.path}: there is no such LoadBalancer Service{hint}"
