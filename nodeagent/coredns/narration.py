"""What the controller says of its passes: in the log, and as Events on the ConfigMaps."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from nodeagent.agent.narration import narrate_decisions
from nodeagent.coredns.keeper import Pass, Quarrel
from nodeagent.errors import SourceError
from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.events import EventBudget, post_event

_LOG = logging.getLogger("nodeagent")


class Narrator:
    """Says each thing when it begins, and not again while it lasts.

    Args:
        connection: To the API server. RBAC: create events in the ConfigMaps' namespace.
        identity: Who says so.
    """

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection = connection
        self._identity = identity
        self._budget = EventBudget()
        self._said: set[str] = set()
        self._said_of_sources: set[str] = set()
        self._before: Desired | None = None
        self._lease_trouble = ""

    def tell(self, done: Pass) -> None:
        """Tells of a pass."""
        served = sum(decision.verdict is Verdict.SERVED for decision in done.edits.decisions)
        for path in done.written:
            _LOG.info(
                "written",
                extra={"fields": {"configmap": path, "names": served, "way": str(done.edits.way)}},
            )
        decided = replace(done.desired, names=done.edits.decisions)
        narrate_decisions(decided, self._before)
        self._before = decided
        for quarrel in done.quarrels:
            self._tell_quarrel(quarrel)
        self._said = _say_once((*done.edits.remarks, *done.errors.values()), self._said)

    def _tell_quarrel(self, quarrel: Quarrel) -> None:
        _LOG.warning("%s", quarrel)
        where = quarrel.config_map
        ref = ObjectRef("ConfigMap", where.namespace, where.name)
        if not self._budget.allow((ref, "CorefilePutBack")):
            return
        failure = post_event(
            self._connection,
            ref,
            "CorefilePutBack",
            str(quarrel),
            node_name=self._identity,
            uid=where.raw["metadata"].get("uid"),
        )
        if failure is not None:
            _LOG.warning("an Event could not be posted", extra={"fields": {"reason": str(failure)}})

    def failed(self, error: str) -> None:
        """Tells why a pass changed nothing."""
        self._said = _say_once([error], self._said)

    def source_trouble(self, errors: Iterable[str]) -> None:
        """Tells what of the cluster can't be read."""
        self._said_of_sources = _say_once(errors, self._said_of_sources)

    def lease_trouble(self, error: SourceError | None) -> None:
        """Tells what is wrong with the lease, when it begins and when it ends."""
        text = str(error or "")
        if bool(text) is not bool(self._lease_trouble):
            if text:
                _LOG.warning("the lease can't be had", extra={"fields": {"reason": text}})
            else:
                _LOG.info("the lease can be had again")
        self._lease_trouble = text


def _say_once(texts: Iterable[str], said: set[str]) -> set[str]:
    """Logs the texts that were not said; gives what is said now."""
    now = set(texts)
    for text in sorted(now - said):
        _LOG.warning("%s", text)
    return now
