"""Which of a node's agents writes: the newest living one, and no other at the same time.

During an upgrade two agents run side by side for a while. Each registers (registration.py) and watches the
others' files. The newest takes the node's lock (node_lock.py, the one that `nodeagent apply` takes) as soon
as its owner releases it; the older one releases it between two passes and is on standby, to take over again
if the newer one dies. The lock alone makes sure that two never write; the files only determine which agent
gets it.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from itertools import accumulate, repeat
from pathlib import Path

from nodeagent.agent import inotify
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.agent.writer import registration
from nodeagent.agent.writer.node_lock import LOCK, NodeLock
from nodeagent.agent.writer.registration import DIRECTORY, Agent
from nodeagent.errors import ApplyError

_LOG = logging.getLogger("nodeagent")

# The kernel reports a closed file before it frees the file's locks (__fput(): fsnotify_close(), then
# locks_remove_file()). So after an event, the attempt is repeated for about half a second.
_AGAIN_SECONDS = tuple(accumulate(repeat(2.0, 8), lambda pause, factor: pause * factor, initial=0.002))
_BLIND_SECONDS = 0.5
_STOP_SECONDS = 1.0


class WriterElection:
    """This agent's place among the node's agents.

    Args:
        run_dir: The directory that all agents of the node share (`relay.runDir`).
        on_change: Called from a thread of this object whenever `is_writer` changed; the loop, once
            woken, calls `release_if_superseded`.
    """

    def __init__(self, run_dir: Path, on_change: Callable[[], None]) -> None:
        self._run_dir = run_dir
        self._on_change = on_change
        self._agent = Agent.now()
        self._file = -1
        self._lock = NodeLock(run_dir)
        self._guard = threading.RLock()
        self._superseded = False
        self._stopping = False
        self._bell = -1
        self._inotify: Inotify | None = None
        self._watching = False
        self._told_blind = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Register and start trying to take the lock; return at once. Call it once for each object.

        Raises:
            ApplyError: the run directory can't be used.
        """
        # First, since loading it takes a while: from the registration on, older agents wait.
        self._open_inotify()
        self._file = registration.register(self._run_dir, self._agent)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="ownership", daemon=True)
        self._thread.start()

    @property
    def is_writer(self) -> bool:
        """Whether a pass may begin: the lock is held, and no newer agent waits for it. From any thread.

        A pass that has begun may finish when this turns false: the lock is held until
        `release_if_superseded`.
        """
        return self._lock.held and not self._superseded

    def release_if_superseded(self) -> bool:
        """Let a newer agent have the lock; for the thread that makes the passes, between two of them.

        Returns:
            Whether this agent is on standby now and was the writer until this call.
        """
        with self._guard:
            if not (self._superseded and self._lock.held):
                return False
            self._lock.release()
            self._superseded = False
            # If the newer one has ended meanwhile, nothing else would report it.
            self._ring()
            return True

    def stop(self) -> None:
        """Release everything, so that another agent takes over at once; not during a pass. Idempotent.

        The last agent removes the run directory, if nothing else is in it.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._guard:
            self._stopping = True
            self._ring()
        thread.join(_STOP_SECONDS)
        with self._guard:
            registration.unregister(self._run_dir, self._agent, self._file)
            self._lock.leave()
            os.close(self._bell)
            self._bell = -1

    def _run(self) -> None:
        # Without waiting for an event first: this check shows which agents started and ended before the
        # watch.
        again = iter(_AGAIN_SECONDS)
        while not self._stopping:
            self._look_out()
            try:
                changed = self._settle()
            except (ApplyError, OSError) as error:
                _LOG.error("Could not determine which agent writes", extra={"fields": {"err": str(error)}})
                changed = False
            if changed:
                self._on_change()
            if self._wait(next(again, None)):
                again = iter(_AGAIN_SECONDS)
        if self._inotify is not None:
            self._inotify.close()

    def _settle(self) -> bool:
        """Update this agent's place from what the directory shows; return whether it changed."""
        with self._guard:
            if self._stopping:
                return False
            if not registration.stands(self._run_dir, self._agent, self._file):
                # Another program emptied the run directory.
                os.close(self._file)
                self._file = registration.register(self._run_dir, self._agent)
                self._forget_watches()
            before = self.is_writer
            newer = registration.newest(self._run_dir, self._agent)
            if self._lock.held:
                # A lock whose file was removed keeps no process out: it is released like any other.
                self._superseded = newer is not None or not self._lock.stands()
            elif newer is not None:
                self._lock.release()  # not held, but open
            elif self._lock.try_acquire():
                registration.sweep(self._run_dir)
            return self.is_writer != before

    def _look_out(self) -> None:
        """Watch the directories, unless they are watched; without inotify they are checked now and then."""
        if self._watching:
            return
        self._open_inotify()
        if self._inotify is None:
            return
        ends = inotify.DELETE | inotify.CLOSE_WRITE
        agents = ends | inotify.MOVED_TO | inotify.DELETE_SELF
        try:
            self._inotify.watch_directory(self._run_dir / DIRECTORY, agents)
            self._inotify.watch_directory(self._run_dir, ends)
        except OSError as error:
            self._forget_watches()
            self._say_blind(error)
        else:
            self._watching = True

    def _open_inotify(self) -> None:
        if self._inotify is None:
            try:
                self._inotify = Inotify()
            except OSError as error:
                self._say_blind(error)

    def _forget_watches(self) -> None:
        self._watching = False
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _say_blind(self, error: OSError) -> None:
        if not self._told_blind:
            self._told_blind = True
            _LOG.warning(
                "Could not use inotify (see fs.inotify.max_user_instances); other agents are polled for",
                extra={"fields": {"err": str(error), "intervalSeconds": _BLIND_SECONDS}},
            )

    def _wait(self, seconds: float | None) -> bool:
        """Wait for a relevant event, or this long; return whether there was one."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify.fileno(), select.POLLIN)
        elif seconds is None:
            seconds = _BLIND_SECONDS
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not poll.poll(None if left is None else int(left * 1000) + 1):
                return False
            if select.select([self._bell], [], [], 0)[0]:
                os.eventfd_read(self._bell)
                return True
            if self._something_matters():
                return True

    def _something_matters(self) -> bool:
        """Whether an agent started or ended, or the lock was released; other files don't count."""
        if self._inotify is None:
            return True
        try:
            return any(
                not event.name or event.name == LOCK or event.name[0].isdigit()
                for event in list(self._inotify.fetch())
            )
        except EventsLostError:
            return True
        except OSError:
            self._forget_watches()  # broken: restarted at once
            return True

    def _ring(self) -> None:
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)
