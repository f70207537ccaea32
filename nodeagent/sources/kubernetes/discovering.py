"""Looks now and then which optional kinds the API server has: their definitions come and go.

Watching CustomResourceDefinitions would tell at once, at the price of a right to read all of them.
"""

import logging
import random
import threading
from collections.abc import Callable

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.backoff import Backoff
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.discovery import discover
from nodeagent.sources.kubernetes.errors import ApiError, ForbiddenError
from nodeagent.sources.kubernetes.resources import Resource
from nodeagent.sources.kubernetes.timing import Timing

_LOG = logging.getLogger(__name__)


class Discovering:
    """A thread that asks and tells; what was found stays in force while the API does not answer.

    Attributes:
        error: what is wrong now, in words for a person; None while all is well.
        refused: RBAC does not allow to ask.
        answered: whether there was an answer once, be it a refusal.
        found: how many kinds were found at the last time.

    Args:
        connection: to the API server.
        timing: how often, how patiently.
        on_found: called, in this thread, with what is served, each time.
        on_change: called, in this thread, after the first answer.
    """

    def __init__(
        self,
        connection: Connection,
        timing: Timing,
        on_found: Callable[[tuple[Resource, ...]], None],
        on_change: Callable[[], None],
    ) -> None:
        self.error: str | None = None
        self.refused = False
        self.answered = False
        self.found = 0
        self._connection = connection
        self._timing = timing
        self._on_found = on_found
        self._on_change = on_change
        self._backoff = Backoff(*timing.backoff)
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Tells the thread to end; nothing is told from now on."""
        self._stopped = True
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Waits for the thread's end, at most `timeout` seconds."""
        self._thread.join(timeout)

    def look_again(self) -> None:
        """Asks at once: somebody met a kind that is not there."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            wait = self._look()
            # Whoever told it to end before `clear` would not be heard.
            if not self._stopped:
                self._wake.wait(wait)

    def _look(self) -> float:
        """Asks once; gives the seconds until the next time."""
        try:
            found = discover(self._connection)
            if self._stopped:
                return 0.0
            self._on_found(found)
        except ForbiddenError as error:
            self._tell(error)
            self.refused = True
            self._answer()
            return random.uniform(*self._timing.refused)  # noqa: S311 - spreads load, guards nothing
        except SourceError as error:
            self._tell(error)
            return self._backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        except Exception as error:  # noqa: BLE001 - logged in full, and told in `error`
            # A mistake of ours must not end the thread: tell it, and ask again.
            _LOG.exception("discovery: unexpected failure; it is tried again")
            self._tell(error)
            return self._backoff.next()
        self.error = None
        self.refused = False
        self.found = len(found)
        self._backoff.reset()
        self._answer()
        return random.uniform(*self._timing.discovery)  # noqa: S311 - as above

    def _answer(self) -> None:
        if not self.answered:
            self.answered = True
            if not self._stopped:
                self._on_change()

    def _tell(self, error: Exception) -> None:
        if self.error != str(error) and not self._stopped:
            _LOG.warning("discovery: %s; what is known stays", error)
        self.error = str(error)
