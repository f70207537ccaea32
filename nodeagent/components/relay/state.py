"""The actual state of the relay, and a change of it: values, and the comparison of them. Pure."""

from dataclasses import dataclass, field
from typing import Literal

from nodeagent.components.component import Diff
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Listener

Action = Literal["none", "start", "reload", "stop"]


@dataclass(frozen=True, slots=True)
class RelayState:
    """The relay's actual state.

    `listeners` are in the configuration file, whose digest is `file_digest` (None: no file, or not
    readable). `running` says whether nodeagent's HAProxy answers; `active_digest` is the digest of the
    configuration that its worker runs. `stray` is true if none answers but processes that nodeagent
    launched are left. `notes` say what could not be read, or is not as expected. `unreadable` is the reason
    why this user can't ask HAProxy, otherwise empty.
    """

    listeners: tuple[Listener, ...] = ()
    file_digest: str | None = None
    running: bool = False
    active_digest: str | None = None
    stray: bool = False
    notes: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def current(self) -> bool:
        """Whether the active configuration is that of the file."""
        return self.running and self.file_digest is not None and self.active_digest == self.file_digest


@dataclass(frozen=True, slots=True)
class RelayChange(Diff):
    """After it, the relay serves `listeners`.

    `reason` says why, if the listeners alone don't. `leaving` are the endpoints of those that will be removed
    later.
    """

    before: RelayState = field(repr=False)
    listeners: tuple[Listener, ...]
    action: Action
    reason: str = ""
    leaving: frozenset[Endpoint] = frozenset()

    def __bool__(self) -> bool:
        return self.action != "none"

    def __str__(self) -> str:
        """Return one line per listener, as in a diff, then the action; empty if there is nothing to do."""
        if not self:
            return ""
        before = {listener.bind: listener for listener in self.before.listeners}
        after = {listener.bind for listener in self.listeners}
        lines = [f"- {_line(listener)}" for bind, listener in before.items() if bind not in after]
        for new in self.listeners:
            old = before.get(new.bind)
            if old is not None and old != new:
                lines += [f"- {_line(old)}", f"+ {_line(new)}"]
        lines += [f"+ {_line(listener)}" for listener in self.listeners if listener.bind not in before]
        lines.append(f"{self.action} HAProxy" + (f": {self.reason}" if self.reason else ""))
        return "\n".join(lines)


def action_towards(
    state: RelayState, wanted: tuple[Listener, ...], desired_digest: str, *, launch: bool
) -> tuple[Action, str]:
    """Return what leads from `state` to the listeners, and why, if they alone don't say it.

    `desired_digest` is that of their rendering. With `launch`, nodeagent starts and stops HAProxy.
    """
    if not wanted and launch:
        exists = state.running or state.stray or state.file_digest is not None
        return ("stop", "nothing is to be relayed") if exists else ("none", "")
    if not state.running:
        # A missing sidecar relays nothing, as desired.
        needed = wanted or state.listeners
        return ("start" if launch else "reload", "no HAProxy answers") if needed else ("none", "")
    if state.active_digest == desired_digest == state.file_digest:
        return "none", ""
    if set(state.listeners) != set(wanted):
        return "reload", ""
    if state.file_digest == desired_digest:
        return "reload", "the process does not run the file's configuration"
    return "reload", "the file is not as nodeagent writes it"


def _line(listener: Listener) -> str:
    proxy = f"PROXY {listener.proxy}" if listener.proxy else "without PROXY"
    text = f"listen {listener.bind} -> {listener.server} {proxy} ({listener.load_balancer})"
    return text if listener.node_address is None else f"{text} node as {listener.node_address}"
