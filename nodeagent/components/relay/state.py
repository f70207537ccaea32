"""The actual state of the relay, and a change of it: values, and the comparison of them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from nodeagent.components.component import Diff
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Listener

Action = Literal["start", "reload", "steer", "stop"]


@dataclass(frozen=True, slots=True)
class HaproxyState:
    """One HAProxy of this node: a relay pod's, or the one that nodeagent launches, which has no `pod`.

    `listeners` and `file_digest` are those of its file (None: it can't be read). `running`: its master
    answers; its worker runs `active_digest` since `started`. `mark`: what `RunDirectory.mark_ready` wrote.
    """

    directory: PurePath
    pod: str = ""
    listeners: tuple[Listener, ...] = ()
    file_digest: str | None = None
    running: bool = False
    active_digest: str | None = None
    started: int = 0
    mark: str = ""
    version: str = ""

    @property
    def current(self) -> bool:
        return self.running and self.file_digest is not None and self.active_digest == self.file_digest


@dataclass(frozen=True, slots=True)
class RelayState:
    """The HAProxies that may serve, the youngest last, and the directories of pods that are `gone`.

    `stray`: processes that nodeagent launched are left although their master does not answer, or pods are to
    serve.
    """

    haproxies: tuple[HaproxyState, ...] = ()
    gone: tuple[PurePath, ...] = ()
    stray: bool = False
    notes: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def serving(self) -> HaproxyState | None:
        """The HAProxy at which new connections are to arrive: the youngest that runs its file."""
        return next((haproxy for haproxy in reversed(self.haproxies) if haproxy.current), None)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All that any of them has in its file, the youngest's first for each endpoint."""
        by_bind = {listener.bind: listener for haproxy in self.haproxies for listener in haproxy.listeners}
        return tuple(sorted(by_bind.values(), key=lambda listener: listener.bind.sort_key()))

    @property
    def expected_mark(self) -> str:
        """What `mark` of the serving one says when new connections arrive there."""
        running = [haproxy for haproxy in self.haproxies if haproxy.running]
        group = [str(haproxy.started) for haproxy in running] if len(running) > 1 else []
        digest = self.serving.active_digest if self.serving else None
        return " ".join((digest or "", *group))


@dataclass(frozen=True, slots=True)
class Step:
    """What is done with one HAProxy; the reason, if its listeners alone don't say it."""

    haproxy: HaproxyState
    action: Action
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RelayChange(Diff):
    """After it, the relay serves `listeners`; those `leaving` will be removed later."""

    before: RelayState = field(repr=False)
    listeners: tuple[Listener, ...]
    steps: tuple[Step, ...] = ()
    leaving: frozenset[Endpoint] = frozenset()
    gone: tuple[PurePath, ...] = ()
    awaited: bool = False
    """Whether it needs an HAProxy, and there is none."""

    def __bool__(self) -> bool:
        return bool(self.steps or self.gone or self.awaited)

    @property
    def repairs(self) -> bool:
        """Whether an HAProxy that was configured already has to be again; pods that come and go are usual."""
        return any(
            step.action != "steer" and (step.haproxy.mark or not step.haproxy.pod) for step in self.steps
        )

    def __str__(self) -> str:
        return "\n".join(dict.fromkeys(self._lines()))

    def _lines(self) -> Iterator[str]:
        befores = [step.haproxy.listeners for step in self.steps if step.action != "steer"]
        for listeners in befores or ([()] if self.awaited else []):
            before, after = {*listeners}, {*self.listeners}
            yield from (f"- {_line(listener)}" for listener in listeners if listener not in after)
            yield from (f"+ {_line(listener)}" for listener in self.listeners if listener not in before)
        for step in self.steps:
            pod = f" of {step.haproxy.pod}" if step.haproxy.pod else ""
            action = "steer new connections to" if step.action == "steer" else step.action
            yield f"{action} HAProxy{pod}" + (f": {step.reason}" if step.reason else "")
        if self.awaited:
            yield "wait for a relay pod"
        yield from (f"- {path}: its pod has ended" for path in self.gone)


def difference(state: RelayState, wanted: tuple[Listener, ...], digest: str, *, launch: bool) -> RelayChange:
    """Return what leads to the listeners, whose rendering has this digest."""
    towards = (_step(state, haproxy, wanted, digest, launch=launch) for haproxy in state.haproxies)
    steps = [step for step in towards if step]
    serving = state.serving
    if not launch:
        if state.stray and not wanted:
            steps.append(Step(HaproxyState(PurePath()), "stop", "nodeagent launched it"))
        if not steps and serving is not None and serving.mark != state.expected_mark:
            steps.append(Step(serving, "steer"))
    awaited = bool(wanted) and not any(haproxy.running for haproxy in state.haproxies) and not launch
    return RelayChange(state, wanted, tuple(steps), gone=state.gone, awaited=awaited)


def _step(
    state: RelayState, haproxy: HaproxyState, wanted: tuple[Listener, ...], digest: str, *, launch: bool
) -> Step | None:
    if not wanted and launch:
        exists = haproxy.running or state.stray or haproxy.file_digest is not None
        return Step(haproxy, "stop", "nothing is to be relayed") if exists else None
    if not haproxy.running:
        # A pod's HAProxy that does not answer is started again by the pod, and no concern of the agent's.
        return Step(haproxy, "start", "no HAProxy answers") if launch else None
    if haproxy.active_digest == digest == haproxy.file_digest:
        return None
    if set(haproxy.listeners) != set(wanted):
        return Step(haproxy, "reload")
    if haproxy.file_digest == digest:
        return Step(haproxy, "reload", "the process does not run the file's configuration")
    return Step(haproxy, "reload", "the file is not as nodeagent writes it")


def _line(listener: Listener) -> str:
    proxy = f"PROXY {listener.proxy}" if listener.proxy else "without PROXY"
    line = f"listen {listener.bind} -> {listener.server} {proxy} ({listener.load_balancer})"
    return line if listener.node_address is None else f"{line} node as {listener.node_address}"
