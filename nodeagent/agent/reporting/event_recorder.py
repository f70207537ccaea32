"""Posts Kubernetes Events from a thread of its own, so that no pass waits for the API."""

import logging
import queue
import threading

from nodeagent.agent.reporting.pending_events import PendingEvent
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.events import EventBudget, post_event

_LOG = logging.getLogger("nodeagent")
_LONGEST_QUEUE = 100


class EventRecorder:
    """Says each thing once an hour at most, and not too many of them (EventBudget).

    Args:
        connection: To the API server.
        node_name: This node.
    """

    def __init__(self, connection: Connection, node_name: str) -> None:
        self._connection = connection
        self._node_name = node_name
        self._budget = EventBudget()
        self._queue: queue.Queue[PendingEvent] = queue.Queue(_LONGEST_QUEUE)
        self._told: type[Exception] | None = None

    def start(self) -> None:
        """Begins to post; the thread ends with the process."""
        threading.Thread(target=self._post, name="events", daemon=True).start()

    def announce(self, announcement: PendingEvent) -> None:
        """Takes it over and returns at once; what is beyond the budget or the queue is left unsaid."""
        if self._queue.full() or not self._budget.allow((announcement.service, announcement.code)):
            return
        self._queue.put(announcement)

    def _post(self) -> None:
        while True:
            one = self._queue.get()
            failure = post_event(
                self._connection,
                one.service,
                one.code,
                one.message,
                node_name=self._node_name,
                uid=one.uid or None,
            )
            # Told once for each kind of failure: its words differ with every namespace.
            if failure is not None and type(failure) is not self._told:
                _LOG.warning("Could not post an Event", extra={"fields": {"reason": str(failure)}})
            self._told = None if failure is None else type(failure)
