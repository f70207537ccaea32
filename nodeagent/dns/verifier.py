"""Repeatedly looks up the hostnames that need verification, in threads of its own: no pass waits for DNS."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from nodeagent.dns.hostnames import Hostnames
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply

_LOG = logging.getLogger("nodeagent")

Ask = Callable[[str], DnsReply]
"""Looks up one hostname; may take seconds, and raises nothing for DNS failures."""
SPREAD_SECONDS: Final = 1.0
"""For agents: all of them learn of a new hostname at the same moment."""
_AT_ONCE: Final = 16
_TELL_SECONDS: Final = 0.5


class DnsVerifier:
    """Has the answers of DNS for the wanted hostnames. Every method may be called from any thread.

    `ask` looks up one hostname, none again before `recheck_seconds` unless it fails; new and changed ones
    wait up to `spread_seconds`, at random. `on_change` is called when the meaning of an answer changed, at
    most twice a second, `on_reply` after each lookup: neither may wait.
    """

    def __init__(
        self,
        ask: Ask,
        recheck_seconds: float,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_reply: Callable[[DnsOutcome], None] = lambda _: None,
        spread_seconds: float = 0.0,
    ) -> None:
        self._ask, self._on_change, self._on_reply = ask, on_change, on_reply
        self._names = Hostnames(recheck_seconds, spread_seconds, _AT_ONCE, time.monotonic)
        # One thread watches the clock and starts another one for each lookup.
        self._watching = self._ended = False
        self._changed = threading.Condition()

    def want(self, wanted: Mapping[str, DnsQuestion]) -> None:
        """Look up these hostnames and no others from now on, changed ones again; forget others' answers."""
        with self._changed:
            if wanted is self._names.wanted:
                return
            if wanted and not self._watching and not self._ended:
                threading.Thread(target=self._watch, name="dns", daemon=True).start()
                self._watching = True
            self._names.want(wanted)
            self._changed.notify_all()

    def answers(self) -> Mapping[str, DnsAnswer]:
        """Return what is known now of hostnames that were looked up; the same object until that changes."""
        with self._changed:
            return self._names.answers()

    def await_answers(self, seconds: float) -> None:
        """Return when every wanted hostname was looked up, or after `seconds`."""
        with self._changed:
            known = self._names.known
            self._changed.wait_for(lambda: all(hostname.answer for hostname in known.values()), seconds)

    def ask_by(self, ask: Ask, recheck_seconds: float) -> None:
        """Look up in this way from now on, and every hostname soon: the configuration changed."""
        with self._changed:
            self._ask, self._names.recheck_seconds = ask, recheck_seconds
            self._names.ask_again(self._names.wanted)
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop looking up. A thread that waits for an answer does not keep the process alive."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self) -> None:
        """Start the lookups that are due, and report changes, until the end."""
        names, may_tell = self._names, -math.inf
        with self._changed:
            while not self._ended:
                now, changes_at = time.monotonic(), names.count_changes()
                if names.news and now >= may_tell:
                    names.news, may_tell = False, now + _TELL_SECONDS
                    self._on_change()
                name = names.take()
                if not isinstance(name, str):
                    pause = min(name, changes_at - now, may_tell - now if names.news else math.inf)
                    self._changed.wait(None if pause == math.inf else pause)
                    continue
                lookup = partial(self._look_up, name, self._ask)
                try:
                    threading.Thread(target=lookup, name="dns", daemon=True).start()
                except RuntimeError as error:  # A limit of processes is reached, perhaps for a moment.
                    names.note(name, DnsReply(DnsOutcome.UNREACHABLE, trouble=f"{error}"))
                    self._changed.notify_all()

    def _look_up(self, name: str, ask: Ask) -> None:
        try:
            reply = ask(name)
        except Exception as error:  # noqa: BLE001 - a bug in nodeagent costs this hostname one attempt
            _LOG.exception("Could not look up a hostname", extra={"fields": {"name": name}})
            reply = DnsReply(DnsOutcome.UNREACHABLE, trouble=f"an error in nodeagent: {error}")
        self._on_reply(reply.outcome)
        with self._changed:
            self._names.note(name, reply)
            self._changed.notify_all()
