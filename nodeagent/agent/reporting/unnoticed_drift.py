"""Tells wherever somebody may look when drift goes unnoticed: log, metric, health page."""

import logging
from collections.abc import Iterable

from nodeagent.agent.drift.watcher import WatcherState
from nodeagent.agent.reporting.health import DRIFT, HealthBoard
from nodeagent.agent.reporting.metrics import Metrics
from nodeagent.components.component import COMPONENTS, ComponentName

_LOG = logging.getLogger("nodeagent")


class Noticing:
    """Compares how the watchers are with how they were.

    Args:
        metrics: The agent's.
        board: The agent's; it has the part DRIFT.
    """

    def __init__(self, metrics: Metrics, board: HealthBoard) -> None:
        self._metrics = metrics
        self._board = board
        self._told: dict[ComponentName, str] = {}
        self._noted: tuple[str, ...] = ()

    def update(self, states: Iterable[WatcherState], relay_notes: Iterable[str] = ()) -> None:
        """Tells what is new.

        Args:
            states: Of every watcher that there is to be; none on standby.
            relay_notes: What of the relay could not be read, or is not as expected.
        """
        found: dict[ComponentName, str] = {state.name: state.error for state in states if not state.running}
        for part in COMPONENTS:
            self._metrics.unnoticed(part, missing=part in found)
            if part in found and self._told.get(part) != found[part]:
                _LOG.warning(
                    "Could not watch a component; its drift is noticed up to ten minutes late",
                    extra={"fields": {"part": part, "reason": found[part]}},
                )
            elif part in self._told and part not in found:
                _LOG.info("Resumed watching a component", extra={"fields": {"part": part}})
        self._told = found
        notes = [f"{part} is not watched: {why}" for part, why in sorted(found.items())]
        told = tuple(relay_notes)
        self._metrics.relay_noted(len(told))
        for note in set(told) - set(self._noted):
            _LOG.warning("Found the relay in an unexpected state", extra={"fields": {"reason": note}})
        self._noted = told
        notes += told
        if notes:
            self._board.part_failed(DRIFT, "; ".join(notes))
        else:
            self._board.part_ok(DRIFT)
