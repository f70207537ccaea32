"""Memory, CPU time and bytes: what the agent takes from its node and from the API server."""

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.api import Api, host_of
from benchmarks.daemon import Cpu, Daemon
from benchmarks.figures import Figure, Goal

MEMORY = "Memory of the agent's process"
CPU = "CPU time"
COST = "CPU time of one Ingress"
STORM = "A storm"
MEMORY_LATER = "Memory after many events"
BYTES = "Read from the API"

_MEMORY_GOALS = {1000: Goal("resident", 85.0), 10_000: Goal("resident", 120.0)}
_IDLE_GOAL = Goal("percent", 0.2)
_BUSY_GOALS = {10_000: Goal("percent", 60.0)}
_STORM_SECONDS, _STORM_STEPS = 10.0, 40
_STORM_GOAL = Goal("after", 5.0)
_GROWTH_NAMES = 50
_GROWTH_GOAL = Goal("growth", 5.0)
_EVENTS_A_SECOND = 10
_COST_GOALS = {1000: Goal("agent", 20.0), 10_000: Goal("agent", 60.0)}
_LONE_SECONDS, _MORE_REST_A_NAME = 0.15, 10e-6


def memory(daemon: Daemon, names: int, when: str = "after the first sync") -> Figure:
    """Measure the memory of an agent that has listed everything and rests since."""
    return Figure(MEMORY, when, "MB", names, daemon.memory(), _MEMORY_GOALS.get(names))


def memory_later(daemon: Daemon, names: int) -> Figure:
    """Measure it once more, after all events of this run."""
    return Figure(MEMORY, "after the events of this run", "MB", names, daemon.memory())


def first_list(daemon: Daemon, names: int) -> Figure:
    """Return what the first list took."""
    total = daemon.api_bytes()
    return Figure(BYTES, "first list", "bytes", names, {"whole": total, "each": total / max(1, names)})


def each_event(api: Api, daemon: Daemon, names: int, events: int = 50) -> Figure:
    """Measure what the creation or deletion of one Ingress takes."""
    before = daemon.api_bytes()
    for number in range(events):
        api.create_ingress(f"read-{number}")
        api.answered()
    daemon.await_rest()
    whole = daemon.api_bytes() - before
    for number in range(events):
        api.delete_ingress(f"read-{number}")
        api.answered()
    daemon.await_rest()
    return Figure(BYTES, "Ingress created", "bytes", names, {"whole": whole, "each": whole / events})


def idle(daemon: Daemon, names: int, seconds: float) -> Figure:
    """Measure an agent that has nothing to do."""
    daemon.await_rest()
    began, before = time.monotonic(), daemon.cpu()
    time.sleep(seconds)
    return _cpu("idle", names, daemon.cpu() - before, time.monotonic() - began, _IDLE_GOAL)


def each_ingress(api: Api, daemon: Daemon, names: int, events: int = 40) -> Figure:
    """Measure what one Ingress takes: it is created, and its controller reports the load balancer."""
    daemon.await_rest()
    before = daemon.cpu()
    for number in range(events):
        for reported in (False, True):
            api.create_ingress(f"cost-{number}", reported=reported)
            api.answered()
            # Lone events: the agent rests after each pass for as long as the pass took.
            time.sleep(_LONE_SECONDS + names * _MORE_REST_A_NAME)
    daemon.await_rest()
    used = daemon.cpu() - before
    columns = {"agent": used.own * 1000 / events, "nft": used.children * 1000 / events}
    for number in range(events):
        api.delete_ingress(f"cost-{number}")
        api.answered()
    daemon.await_rest()
    return Figure(COST, "an Ingress created, then its status", "ms", names, columns, _COST_GOALS.get(names))


def busy(api: Api, daemon: Daemon, names: int, seconds: float) -> Figure:
    """Measure an agent while Ingresses come and go, ten such events a second."""
    began, before = time.monotonic(), daemon.cpu()
    for number, send in zip(range(int(seconds * _EVENTS_A_SECOND)), _coming_and_going(api), strict=False):
        time.sleep(max(0.0, began + number / _EVENTS_A_SECOND - time.monotonic()))
        send()
        api.answered()
    daemon.await_rest()
    what = f"{_EVENTS_A_SECOND} Ingress events/s"
    return _cpu(what, names, daemon.cpu() - before, seconds, _BUSY_GOALS.get(names))


def storm(api: Api, daemon: Daemon, standing: Sequence[str], prefix: str = "moved-") -> Figure:
    """Measure how long after its end a storm is over: each Ingress gets another host within 10 s."""
    daemon.await_rest()
    began, before = time.monotonic(), daemon.cpu()
    for step in range(_STORM_STEPS):
        time.sleep(max(0.0, began + step * _STORM_SECONDS / _STORM_STEPS - time.monotonic()))
        api.move_ingresses(standing[step::_STORM_STEPS], prefix)
        api.answered()
    ended = time.monotonic()
    daemon.await_names_of(prefix + host_of(name) for name in standing)
    columns = {"storm": ended - began, "after": time.monotonic() - ended, "CPU": (daemon.cpu() - before).own}
    return Figure(STORM, "each Ingress changes", "s", len(standing), columns, _STORM_GOAL)


def growth(api: Api, daemon: Daemon, standing: Sequence[str], events: int) -> Figure:
    """Measure the memory before and after that many changes of the same Ingresses."""
    names = standing[:_GROWTH_NAMES]
    daemon.await_rest()
    before = daemon.memory()["resident"]
    for number in range(events // len(names)):
        api.move_ingresses(names, f"g{number}-")
        api.answered()
    daemon.await_rest()
    after = daemon.memory()["resident"]
    columns = {"before": before, "after": after, "growth": after - before}
    return Figure(MEMORY_LATER, f"{events} events", "MB", len(standing), columns, _GROWTH_GOAL)


def _coming_and_going(api: Api) -> Iterator[partial[None]]:
    for number in itertools.count():
        yield partial(api.create_ingress, f"busy-{number}")
        yield partial(api.delete_ingress, f"busy-{number}")


def _cpu(what: str, names: int, used: Cpu, seconds: float, goal: Goal | None = None) -> Figure:
    columns = {
        "agent": used.own * 60 / seconds,
        "nft": used.children * 60 / seconds,
        "percent": used.whole * 100 / seconds,
    }
    return Figure(CPU, what, "s/min", names, columns, goal)
