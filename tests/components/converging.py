"""A component brought to the desired state as in a pass, and what its watch says."""

import select
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.components.component import Component, DiffT, StateT, Watch
from nodeagent.components.node import Applied, CachedState
from nodeagent.model.desired import Desired
from tests.testbed.waiting import wait_until


def add(component: Component[StateT, DiffT], desired: Desired) -> Applied:
    return CachedState(component).apply(desired, keep=True)


def remove(component: Component[StateT, DiffT], desired: Desired) -> Applied:
    return CachedState(component).apply(desired)


def converge(component: Component[StateT, DiffT], desired: Desired) -> str:
    added, removed = add(component, desired), remove(component, desired)
    return added.failure or removed.failure


@contextmanager
def watching(component: Component[StateT, DiffT]) -> Iterator[CachedState[StateT, DiffT]]:
    cached = CachedState(component)
    cached.start_watching()
    assert cached.notice() == "found by a first look"
    try:
        yield cached
    finally:
        cached.stop_watching()


def seen(watch: Watch) -> str:
    """Wait for the watch as the agent's loop does; return what it says first."""
    said = [""]

    def says() -> bool:
        rings = [watch] if watch.fileno() >= 0 else []
        select.select(rings, [], [], min(watch.seconds, 1.0))
        said[0] = watch.drain()
        return bool(said[0])

    wait_until(says, "a notification")
    return said[0]
