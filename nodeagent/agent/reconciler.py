"""A reconcile pass: plan, choose the components to check, apply."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeagent.agent.convergence import ALL, NodePass, Repair, converge
from nodeagent.agent.node_context import NodeContext, gather_facts
from nodeagent.backoff import backoff
from nodeagent.components.component import ComponentName
from nodeagent.components.node import ActualState, Components
from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer
from nodeagent.model.objects import Snapshot
from nodeagent.plan.dns_verification import wanted_names
from nodeagent.plan.planner import Planner
from nodeagent.runtime.repair_conflicts import RepairConflicts

_PORTS_SECONDS = 15.0
"""How often to check whether a port that another program holds is free."""
_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0
_JITTER = 0.2


class Retries:
    """When the components that failed last time are tried again.

    Attributes:
        due_at: Of each component that has not succeeded since, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.due_at: dict[ComponentName, float] = {}
        self._attempts: Counter[ComponentName] = Counter()

    def failed(self, component: ComponentName, now: float) -> None:
        """Note a failure; the retry is due after 1 s, 2 s, 4 s and so on up to a minute, with jitter."""
        self._attempts[component] += 1
        pause = backoff(self._attempts[component], _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        pause *= random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing
        self.due_at[component] = now + pause

    def succeeded(self, component: ComponentName) -> bool:
        """Forget the component's failures; return whether there were any."""
        del self._attempts[component]
        return self.due_at.pop(component, None) is not None

    def due(self, now: float) -> frozenset[ComponentName]:
        """Return the components that are due."""
        return frozenset(component for component, due in self.due_at.items() if due <= now)


class Reconciler:
    """Keeps one node in the state that the cluster's objects require.

    Between passes it remembers only the desired state and which listeners answered, to check only components
    that have a reason; the actual state is read from the node each time.

    Args:
        node_name: This node.
        config: The configuration.
        components: What reads and changes the node.
        read_node_context: Reads the facts that change seldom.
        read_dns: Returns the answers of DNS so far; it must not wait.
        adopt: Whether hairpin-proxy's lines of the hosts file are taken over, as in the components.
        clock: Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 - what a pass rests on
        self,
        node_name: str,
        config: Config,
        components: Components,
        read_node_context: Callable[[Snapshot, ActualState], NodeContext],
        *,
        read_dns: Callable[[], Mapping[str, DnsAnswer]] = dict,
        adopt: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_name = node_name
        self._config = config
        self._components = components
        self._read_node_context = read_node_context
        self._read_dns = read_dns
        self._adopt = adopt
        self._clock = clock
        self._meanwhile = ThreadPoolExecutor(1, "reading")
        self._context: NodeContext | None = None
        self._context_of: object = None
        self._planner = Planner(config)
        self._wanted: Desired | None = None
        self._wanted_names: Mapping[str, tuple[IPAddress, ...]] = {}
        self._answering: AbstractSet[Endpoint] = frozenset()
        self._unfinished: frozenset[ComponentName] = frozenset()
        self._held: dict[ComponentName, tuple[float, str]] = {}
        self._ports_due: float | None = None
        self._conflicts: RepairConflicts[ComponentName] = RepairConflicts(clock)
        self.retries = Retries()
        self.relay_notes: tuple[str, ...] = ()

    @property
    def conflicting(self) -> frozenset[str]:
        """The components that another program keeps reverting now."""
        return self._conflicts.conflicting()

    def next_due(self) -> float | None:
        """When something that failed, is held or is taken is due (monotonic seconds); None for nothing."""
        times = {name: when for name, (when, _) in self._held.items()}
        # A held component is not tried before its time, whatever else is wrong with it.
        times = self.retries.due_at | times
        relay, context, now = self._components.relay, self._context, self._clock()
        ports_due = self._ports_due is not None and self._ports_due <= now
        if ports_due and context and relay.port_holders() == context.port_holders:
            self._ports_due = now + _PORTS_SECONDS
        others = () if self._ports_due is None else (self._ports_due,)
        return min([*times.values(), *others], default=None)

    def reconcile(
        self, snapshot: Snapshot, drift: Mapping[ComponentName, str], *, everything: bool = False
    ) -> NodePass:
        """Run one pass. Failures of components are in the result; nothing is raised for them.

        Args:
            snapshot: The cluster as it is now.
            drift: The components that something has touched, and the observation.
            everything: Check every component, whether or not there is a reason.
        """
        observed = frozenset(drift)
        drift, held = self._admitted(drift)
        due = self.retries.due(self._clock()) - held
        ports_due = self._ports_due is not None and self._ports_due <= self._clock()
        actual = ActualState(self._components)
        context = self._refreshed(snapshot, actual, anew=everything or bool(drift or due) or ports_due)
        desired = self._plan(snapshot, actual, context)
        # No event reports that another program has released a port.
        taken = any(decision.taken for decision in desired.load_balancers)
        self._ports_due = self._clock() + _PORTS_SECONDS if taken else None
        changed = changed_components(self._wanted, desired)
        unfinished = self._unfinished if due else frozenset[ComponentName]()
        # A repair that is held waits; what leads to the missing part does not, and is withdrawn.
        components = with_dependents(changed | observed | set(drift) | due | unfinished)
        if everything:
            components = ALL
        components -= held - changed
        answering = None if "relay" in components or "relay" in with_dependents(held) else self._answering
        done = converge(desired, actual, components, answering)
        if self._wanted is None or desired.hosts is not self._wanted.hosts:
            self._wanted_names = wanted_names(desired.hosts)
        self._wanted = desired
        self._answering = done.ready
        if "relay" in done.left:
            self.relay_notes = done.left["relay"].notes
        self._unfinished = (self._unfinished | components) if done.errors else frozenset()
        done.repairs = self._repairs(done, drift, changed)
        for name in done.errors.keys() & components:
            # A component that was not checked did not fail again: its next retry stays as it was.
            self.retries.failed(name, self._clock())
        fine = components - done.errors.keys()
        done.recovered = frozenset(name for name in fine if self.retries.succeeded(name))
        return done

    def _refreshed(self, snapshot: Snapshot, actual: ActualState, *, anew: bool) -> NodeContext:
        inputs = (snapshot.services, snapshot.node, snapshot.api_servers)
        if inputs != self._context_of:
            # Probably a load balancer: nft lists the rules while the rest is read and decided.
            actual.dnat.begin(self._meanwhile)
        if self._context is None or anew or inputs != self._context_of:
            context = self._read_node_context(snapshot, actual)
            if self._context is not None:  # what could be read earlier, but can't be now, still counts
                rules = context.service_rules.after(self._context.service_rules)
                context = replace(context, service_rules=rules)
            self._context, self._context_of = context, inputs
        return self._context

    def _plan(self, snapshot: Snapshot, actual: ActualState, context: NodeContext) -> Desired:
        wanted = self._wanted.hosts if self._wanted else ()
        facts = gather_facts(
            self._node_name,
            context,
            self._config,
            actual,
            adopt=self._adopt,
            dns=self._read_dns(),
            wanted=wanted,
        )
        if self._config.hosts.verify == "dns":
            facts = replace(facts, wanted_names=self._wanted_names)
        return self._planner.plan(snapshot, facts)

    def _admitted(
        self, drift: Mapping[ComponentName, str]
    ) -> tuple[dict[ComponentName, str], frozenset[ComponentName]]:
        """Return the drift to repair now, with what was held and is due; and the components still held."""
        now = self._clock()
        due = {name: what for name, (when, what) in self._held.items() if when <= now}
        self._held = {name: entry for name, entry in self._held.items() if entry[0] > now}
        all_drift = due | dict(drift)
        return {name: all_drift[name] for name in all_drift if name not in self._held}, frozenset(self._held)

    def _repairs(
        self, done: NodePass, drift: Mapping[ComponentName, str], changed: AbstractSet[ComponentName]
    ) -> dict[ComponentName, Repair]:
        """Return the components in which something was repaired although no desired change required it."""
        mended = {change.component for change in done.changes} & set(drift) - changed
        repairs = {}
        for name in sorted(mended):
            displaced = all(change.displaced for change in done.changes if change.component == name)
            verdict = self._conflicts.repaired(name, displaced=displaced)
            repairs[name] = Repair(drift[name], verdict)
            if verdict.delay > 0:
                self._held[name] = (self._clock() + verdict.delay, drift[name])
        return repairs


# A component's change can affect what depends on it: the relay on addresses, DNAT and hosts on the relay.
_RESTS_ON_IT: dict[ComponentName, frozenset[ComponentName]] = {
    "addresses": ALL,
    "relay": frozenset({"relay", "dnat", "hosts"}),
    "dnat": frozenset({"dnat"}),
    "hosts": frozenset({"hosts"}),
}


def changed_components(before: Desired | None, after: Desired) -> frozenset[ComponentName]:
    """Return the components whose desired state differs; all of them without a `before`."""
    if before is None:
        return ALL
    compared: dict[ComponentName, bool] = {
        "addresses": before.addresses != after.addresses,
        "relay": before.listeners != after.listeners,
        "dnat": before.dnat != after.dnat,
        "hosts": before.hosts != after.hosts,
    }
    return frozenset(name for name, differs in compared.items() if differs)


def with_dependents(components: Iterable[ComponentName]) -> frozenset[ComponentName]:
    """Return the components and all that depend on them."""
    return frozenset(dependent for name in components for dependent in _RESTS_ON_IT[name])
