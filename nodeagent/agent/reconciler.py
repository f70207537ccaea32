"""One pass: what shall stand, what of the node has to be looked at for that, and making it so."""

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from nodeagent.agent.appliers import Appliers
from nodeagent.agent.convergence import Convergence, Step, converge
from nodeagent.agent.drift.fights import Fights, Verdict
from nodeagent.agent.facts import Circumstances, gather_facts, later
from nodeagent.agent.parts import ALL_PARTS, Part
from nodeagent.agent.retries import Retries
from nodeagent.agent.scope import changed_parts, with_dependents
from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired
from nodeagent.model.dns import DnsAnswer
from nodeagent.model.objects import Snapshot
from nodeagent.plan.dns_verification import WantedNames
from nodeagent.plan.planner import Planner

_PORTS_SECONDS = 15.0
"""So often it is looked whether a port that another program holds is free."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Drift that was mended: what had called, and whether another program keeps undoing it."""

    found: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided and did.

    `parts` were looked at; `recovered` had failed before and did not this time. `held` are parts with drift
    that wait, since another program fights over them.
    """

    desired: Desired
    parts: frozenset[Part]
    steps: tuple[Step, ...]
    errors: Mapping[Part, str]
    repairs: Mapping[Part, Repair]
    recovered: frozenset[Part]
    held: frozenset[Part]
    seconds: Mapping[Part, float]
    convergence: Convergence


class Reconciler:
    """Brings one node to what the cluster asks for, again and again.

    Between passes it remembers only what it wanted and which listeners answered, so as to look at no more
    than has a reason to be looked at; what stands is read from the node each time.

    Args:
        node_name: This node.
        config: The configuration.
        appliers: Who changes the node.
        read_circumstances: Reads the facts that change seldom.
        read_dns: Tells what DNS said so far; it must not wait.
        adopt: Whether hairpin-proxy's lines of the hosts file are taken over, as the appliers have it.
        clock: Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 - what a pass rests on
        self,
        node_name: str,
        config: Config,
        appliers: Appliers,
        read_circumstances: Callable[[Snapshot], Circumstances],
        *,
        read_dns: Callable[[], Mapping[str, DnsAnswer]] = dict,
        adopt: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_name = node_name
        self._config = config
        self._appliers = appliers
        self._read_circumstances = read_circumstances
        self._read_dns = read_dns
        self._adopt = adopt
        self._clock = clock
        self._around: Circumstances | None = None
        self._looked_for: object = None
        self._planner = Planner(config)
        self._wanted: Desired | None = None
        self._wanted_names = WantedNames()
        self._answering: AbstractSet[Endpoint] = frozenset()
        self._owed: frozenset[Part] = frozenset()
        self._held: dict[Part, tuple[float, str]] = {}
        self._ports_due: float | None = None
        self._fights: Fights[Part] = Fights(clock)
        self.retries = Retries()
        self.relay_notes: tuple[str, ...] = ()

    @property
    def fighting(self) -> frozenset[str]:
        """The parts that another program fights over now."""
        return self._fights.fighting()

    def next_due(self) -> float | None:
        """When a failed or held part, or a taken port, is due (monotonic seconds); None for nothing."""
        times = {part: when for part, (when, _) in self._held.items()}
        for part, failure in self.retries.failures.items():
            # A part that is held is not tried before its time, whatever else was wrong with it.
            times.setdefault(part, failure.due)
        if self._ports_due is not None and self._ports_due <= self._clock() and not self._ports_changed():
            self._ports_due = self._clock() + _PORTS_SECONDS
        due = [*times.values(), *(() if self._ports_due is None else (self._ports_due,))]
        return min(due, default=None)

    def reconcile(self, snapshot: Snapshot, drift: Mapping[Part, str], *, everything: bool = False) -> Pass:
        """Runs one pass. What an applier could not do stands in the result; nothing is raised for it.

        Args:
            snapshot: The cluster as it is now.
            drift: The parts that something has touched, and what was seen.
            everything: Look at every part, whether or not there is a reason.
        """
        drift, held = self._admitted(drift)
        due = self.retries.due(self._clock()) - held
        ports_due = self._ports_due is not None and self._ports_due <= self._clock()
        self._look_around(snapshot, anew=everything or bool(drift) or bool(due) or ports_due)
        desired = self._plan(snapshot)
        # Nothing tells when another program lets go of a port.
        taken = any(decision.taken for decision in desired.load_balancers)
        self._ports_due = self._clock() + _PORTS_SECONDS if taken else None
        changed = changed_parts(self._wanted, desired)
        parts = with_dependents(changed | set(drift) | due | (self._owed if due else frozenset()))
        if everything:
            parts = ALL_PARTS
        parts -= held - changed
        answering = None if "relay" in parts else self._answering
        done = converge(desired, self._appliers, parts, answering)
        self._wanted = desired
        self._answering = done.answering
        if done.relay_notes is not None:
            self.relay_notes = done.relay_notes
        self._owed = (self._owed | parts) if done.errors else frozenset()
        return Pass(
            desired=done.desired,
            parts=parts,
            steps=tuple(done.steps),
            errors=done.errors,
            repairs=self._repairs(done, drift, changed),
            recovered=self._account(done, parts),
            held=held,
            seconds=done.seconds,
            convergence=done,
        )

    def _look_around(self, snapshot: Snapshot, *, anew: bool) -> None:
        worth_a_look = (snapshot.services, snapshot.node, snapshot.config_maps)
        if self._around is None or anew or worth_a_look != self._looked_for:
            self._around = later(self._around, self._read_circumstances(snapshot))
            self._looked_for = worth_a_look

    def _ports_changed(self) -> bool:
        return self._around is None or self._appliers.relay.port_holders() != self._around.port_holders

    def _plan(self, snapshot: Snapshot) -> Desired:
        if self._around is None:
            raise AssertionError("a plan without circumstances")
        facts = gather_facts(
            self._node_name,
            self._around,
            self._config,
            self._appliers,
            adopt=self._adopt,
            dns=self._read_dns(),
        )
        if self._wanted is not None and self._config.hosts.verify == "dns":
            facts = replace(facts, wanted_names=self._wanted_names.after(self._wanted.hosts))
        return self._planner.plan(snapshot, facts)

    def _admitted(self, drift: Mapping[Part, str]) -> tuple[dict[Part, str], frozenset[Part]]:
        """The drift to mend now, with what was held and is due; and the parts that are held on."""
        now = self._clock()
        due = {part: what for part, (when, what) in self._held.items() if when <= now}
        self._held = {part: entry for part, entry in self._held.items() if entry[0] > now}
        return {
            part: what for part, what in (due | dict(drift)).items() if part not in self._held
        }, frozenset(self._held)

    def _repairs(
        self, done: Convergence, drift: Mapping[Part, str], changed: AbstractSet[Part]
    ) -> dict[Part, Repair]:
        """The parts where something had to be mended that nobody had asked to change."""
        mended = {step.part for step in done.steps} & set(drift) - changed
        repairs = {}
        for part in sorted(mended):
            displaced = part == "dnat" and done.displacements == done.transactions
            verdict = self._fights.repaired(part, displaced=displaced)
            repairs[part] = Repair(drift[part], verdict)
            if verdict.delay > 0:
                self._held[part] = (self._clock() + verdict.delay, drift[part])
        return repairs

    def _account(self, done: Convergence, parts: AbstractSet[Part]) -> frozenset[Part]:
        now = self._clock()
        for part in done.errors.keys() & parts:
            # What was not looked at did not fail anew: its next try is as near as it was.
            self.retries.failed(part, done.errors[part], now)
        fine = parts - set(done.errors)
        return frozenset(part for part in fine if self.retries.succeeded(part) is not None)
