"""Tells of a pass wherever somebody may look: log, metrics, health page, Events."""

import time

from nodeagent.agent.reconciler import NodePass, Reconciler
from nodeagent.agent.reporting.event_recorder import EventRecorder
from nodeagent.agent.reporting.health import HealthBoard
from nodeagent.agent.reporting.metrics import Metrics
from nodeagent.agent.reporting.name_counts import NameCounts
from nodeagent.agent.reporting.pass_log import narrate
from nodeagent.agent.reporting.pending_events import announcements
from nodeagent.agent.triggers import TriggerBatch
from nodeagent.components.component import COMPONENTS
from nodeagent.model.desired import Desired

PLAN = "plan"
"""The health page's part for the decision itself."""


class PassReporter:
    """Keeps account of the passes of one agent.

    Attributes:
        names: how many hostnames the last pass decided how.

    Args:
        metrics: The agent's.
        board: The agent's; it has each part of the node and PLAN.
        announcer: Posts Events.
    """

    def __init__(self, metrics: Metrics, board: HealthBoard, announcer: EventRecorder) -> None:
        self._metrics = metrics
        self._board = board
        self._announcer = announcer
        self._told: Desired | None = None
        self.names = NameCounts()
        self._fought: frozenset[str] = frozenset()

    def begin_anew(self) -> None:
        """The next pass tells everything: this agent has just become the node's writer."""
        self._told = None

    def of_pass(self, done: NodePass, calls: TriggerBatch, reconciler: Reconciler) -> None:
        """Tells what the pass decided, did, mended and could not do; `calls` are what called for it."""
        narrate(done, self._told)
        desired = done.convergence.desired
        if desired != self._told:
            self._metrics.decided(desired)
        self.names.update(desired.names)
        for announcement in announcements(desired, self.names.codes):
            self._announcer.announce(announcement)
        self._told = desired
        self._board.part_ok(PLAN)
        self._parts(done)
        self._repairs(done, reconciler)
        if not done.convergence.errors and not reconciler.retries.failures:
            self._metrics.synced(time.time())
            self._board.synced()
            if calls.events and calls.first is not None:
                self._metrics.event_applied(time.monotonic() - calls.first)

    def _parts(self, done: NodePass) -> None:
        errors = done.convergence.errors
        for part in done.components:
            seconds = done.convergence.seconds.get(part, 0.0)
            if part in errors:
                self._metrics.apply_failed(part, seconds)
                self._board.part_failed(part, errors[part])
            else:
                self._metrics.applied(part, seconds)
                self._board.part_ok(part)

    def _repairs(self, done: NodePass, reconciler: Reconciler) -> None:
        for part, repair in done.repairs.items():
            self._metrics.repaired(part)
            if repair.verdict.announce and part not in self._fought:
                self._metrics.fight_began(part)
        self._fought = reconciler.fighting
        for part in set(COMPONENTS) - self._fought:
            self._metrics.fight_ended(part)
