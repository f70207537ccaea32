"""The actual state of the relay, and a change of it: values, and the comparison of them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from nodeagent.model.desired import Listener

Action = Literal["none", "start", "reload", "stop"]


@dataclass(frozen=True, slots=True)
class RelayState:
    """The relay's actual state.

    `listeners` are in the configuration file, whose digest is `file_digest` (None: no file, or not
    readable). `running` says whether nodeagent's HAProxy answers; `in_force` is the digest of the
    configuration that its worker runs. `stray` is true if none answers but processes that nodeagent
    launched are left. `notes` say what could not be read, or is not as expected.
    """

    listeners: tuple[Listener, ...] = ()
    file_digest: str | None = None
    running: bool = False
    in_force: str | None = None
    version: str = ""
    stray: bool = False
    notes: tuple[str, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the active configuration is that of the file."""
        return self.running and self.file_digest is not None and self.in_force == self.file_digest


@dataclass(frozen=True, slots=True)
class RelayChange:
    """The change after which the relay serves `listeners`; false if there is nothing to do.

    `changed` pairs actual and desired listeners. `reason` says why, if the listeners alone don't.
    `growing` is the half that adds and changes, and removes no listener at which something may point.
    """

    before: RelayState = field(repr=False)
    listeners: tuple[Listener, ...]
    added: tuple[Listener, ...]
    removed: tuple[Listener, ...]
    changed: tuple[tuple[Listener, Listener], ...]
    action: Action
    reason: str = ""
    growing: "RelayChange | None" = field(default=None, repr=False)

    @property
    def growth(self) -> str:
        """What `growing` does, for a person."""
        return str(self.growing) if self.growing and self.growing.action != "stop" else ""

    @property
    def shrinkage(self) -> str:
        """What the other half does, for a person."""
        return str(self) if self.removed or not self.listeners else ""

    def __bool__(self) -> bool:
        return self.action != "none"

    def __str__(self) -> str:
        """Return one line per listener, as in a diff, then the action; empty if there is nothing to do."""
        if not self:
            return ""
        lines = [f"- {_line(listener)}" for listener in self.removed]
        for old, new in self.changed:
            lines += [f"- {_line(old)}", f"+ {_line(new)}"]
        lines += [f"+ {_line(listener)}" for listener in self.added]
        lines.append(f"{self.action} HAProxy" + (f": {self.reason}" if self.reason else ""))
        return "\n".join(lines)


def compare(
    state: RelayState,
    listeners: Iterable[Listener],
    desired_digest: str,
    *,
    launch: bool,
) -> RelayChange:
    """Return the change from `state` to `listeners`, without `growing`.

    Args:
        state: As read.
        listeners: The desired ones.
        desired_digest: Of their rendering.
        launch: Whether HAProxy is started and stopped by nodeagent.
    """
    wanted = tuple(sorted(listeners, key=lambda listener: listener.bind.sort_key()))
    old = {listener.bind: listener for listener in state.listeners}
    new = {listener.bind: listener for listener in wanted}
    as_desired = state.in_force == desired_digest == state.file_digest
    action: Action = "none"
    reason = ""
    if not wanted and launch:
        if state.running or state.stray or state.file_digest is not None:
            action, reason = "stop", "nothing is to be relayed"
    elif not wanted and not state.running and not old:
        # A missing sidecar relays nothing, as desired.
        pass
    elif not state.running:
        action, reason = ("start" if launch else "reload"), "no HAProxy answers"
    elif not as_desired:
        action = "reload"
        if set(old.items()) == set(new.items()):
            reason = (
                "the process does not run the file's configuration"
                if state.file_digest == desired_digest
                else "the file is not as nodeagent writes it"
            )
    return RelayChange(
        before=state,
        listeners=wanted,
        added=tuple(listener for listener in wanted if listener.bind not in old),
        removed=tuple(listener for listener in state.listeners if listener.bind not in new),
        changed=tuple((old[bind], new[bind]) for bind in new if bind in old and old[bind] != new[bind]),
        action=action,
        reason=reason,
    )


def _line(listener: Listener) -> str:
    proxy = f"PROXY {listener.proxy}" if listener.proxy else "without PROXY"
    text = f"listen {listener.bind} -> {listener.server} {proxy} ({listener.load_balancer})"
    return text if listener.node_address is None else f"{text} node as {listener.node_address}"
