"""A reconcile pass: plan, then read, compare and apply each component."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from nodeagent.agent.convergence import ALL, NodePass, Repair, apply_plan
from nodeagent.backoff import SubjectBackoff
from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.components.node import ActualState, Components
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, Facts
from nodeagent.model.objects import ObjectRef, Service, Snapshot
from nodeagent.plan.balancers.this_node import doubtful_endpoints, lacks_family
from nodeagent.plan.planner import Planner
from nodeagent.sources.node import with_hosts_file

_FACTS_SECONDS = 600.0
"""How long the facts that no event reports hold."""
_SOON_SECONDS = 15.0
"""How soon a fact is read again that contradicts what a load balancer needs: no event reports its change."""


class Reconciler:
    """Keeps one node in the state that the cluster's objects require. A pass plans and compares everything.

    `read_facts` reads what changes seldom, given the facts read before; `read_dns` does not wait. `backoff`
    has the components that wait after a failure, or because another program keeps reverting them.
    """

    def __init__(  # noqa: PLR0913 - what a pass rests on
        self,
        config: Config,
        components: Components,
        read_facts: Callable[[Snapshot, ActualState, Facts | None], Facts],
        *,
        read_dns: Callable[[], Mapping[str, DnsAnswer]] = dict,
        adopt: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._read_facts = read_facts
        self._read_dns = read_dns
        self._adopt = adopt
        self._clock = clock
        self._planner = Planner(config)
        self._facts: Facts | None = None
        self._facts_of: object = None
        self._facts_until = 0.0
        self._inputs_at = 0.0
        self._retry_at = math.inf
        self._before: Desired | None = None
        self._desired: Desired | None = None
        self._kept: set[ComponentName] = set()
        self._services: tuple[Service, ...] = ()
        self._listed = {service.path for service in config.load_balancers.services}
        # By namespace. A change is up to two reloads, and after 13 to 96 HAProxy's oldest process ends, with
        # connections of others.
        self._reloads: SubjectBackoff[str] = SubjectBackoff(
            clock, window=3600.0, first=10.0, longest=600.0, forget=3600.0
        )
        self._seen: dict[ComponentName, str] = {}
        self._unrepaired: dict[ComponentName, str] = {}
        self._failed_in: dict[ComponentName, object] = {}
        self.backoff: SubjectBackoff[ComponentName] = SubjectBackoff(clock)
        self.actual = ActualState(components, clock)

    def start_watching(self) -> None:
        """Begin to watch what the configuration has nodeagent keep on the node."""
        relay = self._config.relay.kind == "node"
        dnat = relay or self._config.dnat.backend != "none"
        watched = {"addresses": relay, "relay": relay, "dnat": dnat, "hosts": self._config.hosts.enabled}
        for name in COMPONENTS:
            if watched[name]:
                self.actual[name].start_watching()

    def stop_watching(self) -> None:
        """End that. Idempotent."""
        for name in COMPONENTS:
            self.actual[name].stop_watching()

    def notice(self) -> bool:
        """Take the kernel's notifications, without waiting; return whether a component may have changed."""
        for name in COMPONENTS:
            if seen := self.actual[name].notice():
                self._seen.setdefault(name, seen)
        return bool(self._seen)

    def next_due(self) -> float:
        """Return when a pass is due even if nothing happens (the clock's seconds)."""
        return min(self._facts_until, self._retry_at)

    def descriptors(self) -> list[int]:
        """Return what becomes readable when `notice` has something to take."""
        descriptors = (self.actual[name].fileno() for name in COMPONENTS)
        return [descriptor for descriptor in descriptors if descriptor >= 0]

    def next_notice(self) -> float:
        """Return when `notice` is due even if nothing becomes readable (the clock's seconds)."""
        return min(self.actual[name].due_at() for name in COMPONENTS)

    def reconcile(self, snapshot: Snapshot) -> NodePass:
        """Run one pass. Failures of components are in the result."""
        self.notice()
        seen, self._seen = self._seen, {}
        services, snapshot = self._services, self._paced(snapshot)
        # Addresses, and the holders of ports; what failed may have failed for one of them.
        anew = bool(self.backoff.failing or seen.keys() & {"addresses", "relay"})
        facts = self._refreshed(snapshot, anew=anew)
        desired = self._plan(snapshot, facts)
        if self._is_contradicted(snapshot, facts, desired):
            self._facts_until = min(self._facts_until, self._clock() + _SOON_SECONDS)
        left_alone = frozenset(name for name in COMPONENTS if self._is_left_alone(name, desired))
        done = apply_plan(desired, self.actual, left_alone)
        done.recovered = self._count_failures(done)
        causes = seen | self._unrepaired
        done.repairs = self._repairs(done, causes)
        self._unrepaired = {name: causes[name] for name in left_alone & causes.keys()}
        done.waiting = self._count_reloads(desired, services)
        waiting = (*self.backoff.waiting().values(), *self._reloads.waiting().values())
        self._retry_at = min(waiting, default=math.inf)
        self._before, self._kept, self._desired = done.desired, done.kept, desired
        return done

    def _paced(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the load balancers of those namespaces that wait as they were, or gone."""
        if waiting := self._reloads.waiting():
            known = {service.ref for service in snapshot.services}
            current = (service for service in snapshot.services if self._pacing(service.ref) not in waiting)
            kept = (old for old in self._services if self._pacing(old.ref) in waiting and old.ref in known)
            snapshot = replace(snapshot, services=(*current, *kept))
        self._services = snapshot.services
        return snapshot

    def _count_reloads(self, desired: Desired, services: tuple[Service, ...]) -> frozenset[str]:
        """Count whose changed Services make HAProxy reload; return the namespaces that wait."""
        before = self._desired
        if before is not None and before.listeners != desired.listeners:
            changed = {*before.listeners} ^ {*desired.listeners}
            # Not a namespace that only lost an address, or a port: to wait would end neither.
            causes = {self._pacing(service.ref) for service in {*services} ^ {*self._services}}
            for namespace in {self._pacing(listener.load_balancer) for listener in changed} & causes - {""}:
                self._reloads.wrote(namespace)
        return frozenset(self._reloads.waiting())

    def _pacing(self, service: ObjectRef) -> str:
        """Return the namespace with which a load balancer waits; empty if the administrator lists it."""
        return "" if service.path in self._listed else service.namespace

    def _refreshed(self, snapshot: Snapshot, *, anew: bool) -> Facts:
        inputs = (snapshot.services, snapshot.node, snapshot.api_servers)
        now = self._clock()
        if inputs != self._facts_of:
            self._inputs_at = now
        elif now >= self._facts_until:
            self.actual.addresses.forget()
        if self._facts is None or anew or now >= self._facts_until or inputs != self._facts_of:
            self._facts, self._facts_of = self._read_facts(snapshot, self.actual, self._facts), inputs
            self._facts_until = now + _FACTS_SECONDS
        return self._facts

    def _is_contradicted(self, snapshot: Snapshot, facts: Facts, desired: Desired) -> bool:
        """Whether a load balancer needs what the node did not have: a port, a family, kube-proxy's rules."""
        if any(lb.taken for lb in desired.load_balancers) or lacks_family(snapshot, facts, self._config):
            return True
        # To list kube-proxy's rules costs more.
        is_new = self._clock() < self._inputs_at + _FACTS_SECONDS
        doubtful = {pair.address for pair in doubtful_endpoints(snapshot, self._config)} if is_new else set()
        return not doubtful <= facts.short_circuited

    def _plan(self, snapshot: Snapshot, facts: Facts) -> Desired:
        wanted = self._desired.hosts if self._desired else ()
        standing = self._planner.standing if self._config.hosts.verify == "dns" else {}
        at = self._planner.standing_at
        facts = replace(facts, dns=self._read_dns(), standing_names=standing, standing_at=at)
        facts = with_hosts_file(facts, self._config, self.actual, adopt=self._adopt, wanted=wanted)
        return self._planner.plan(snapshot, facts)

    def _is_left_alone(self, name: ComponentName, desired: Desired) -> bool:
        """Whether it waits, and nothing new is desired of it, nor has its state changed since it failed."""
        if not self.backoff.until(name) or not _same(name, self._desired, desired):
            return False
        failed = name in self.backoff.failing and name not in self.backoff.conflicting()
        return not failed or self._state(name) == self._failed_in[name]

    def _count_failures(self, done: NodePass) -> frozenset[ComponentName]:
        """Have what failed wait, longer each time; return what had failed and succeeded now."""
        tried = ALL - done.left_alone
        for name in tried & done.errors.keys():
            self.backoff.failed(name)
            self._failed_in[name] = self._state(name)
        return frozenset(name for name in tried - done.errors.keys() if self.backoff.succeeded(name))

    def _repairs(self, done: NodePass, seen: Mapping[ComponentName, str]) -> dict[ComponentName, Repair]:
        """Return the components in which something was changed although the same was desired before."""
        repairs = {}
        for name in COMPONENTS:
            if name in done.undone:
                repairs[name] = Repair("it was reverted at once", self.backoff.wrote(name))
                continue
            changes = [change for component, change in done.changes if component == name and change.repairs]
            failed = name in done.recovered or name in self.backoff.failing
            # What this pass may remove, and the one before might not, is no drift.
            may_more = name in self._kept - done.kept
            if not changes or failed or may_more or not _same(name, self._before, done.desired):
                continue
            # Others' rules that were only inserted before nodeagent's, as kube-proxy's are whenever it
            # starts, are no conflict, and waiting would leave nodeagent's without effect.
            displaced = all(change.displaced for change in changes)
            delay = 0.0 if displaced else self.backoff.wrote(name)
            repairs[name] = Repair(seen.get(name, "found by this pass"), delay)
        return repairs

    def _state(self, name: ComponentName) -> object:
        try:
            return self.actual[name].state()
        except ApplyError as error:
            return str(error)


def _same(name: ComponentName, before: Desired | None, after: Desired) -> bool:
    part = "listeners" if name == "relay" else name
    return before is not None and getattr(before, part) == getattr(after, part)
