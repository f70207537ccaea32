"""From an event on the API to what it changes on the node, one event after another."""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.api import LB_ADDRESS, Api, host_of
from benchmarks.daemon import Daemon
from benchmarks.figures import Figure, Goal, spread
from benchmarks.watching import DELETED_ELEMENT, NEW_ELEMENT, DnatWitness, HostsFileWitness

PART = "Event to applied"
_GOALS = {
    ("Ingress created: hosts file renamed", 1000): Goal("p99", 50.0),
    ("Ingress deleted: hosts file renamed", 1000): Goal("p99", 50.0),
    ("Ingress created: hosts file renamed", 10_000): Goal("p99", 150.0),
    ("Ingress deleted: hosts file renamed", 10_000): Goal("p99", 150.0),
    ("LB created: DNAT element in the kernel", 1000): Goal("p99", 70.0),
    ("LB deleted: DNAT element gone", 1000): Goal("p99", 45.0),
}
# Seconds of rest before an event: lone events are measured, and the agent rests after a pass for as long as
# it took. At random, so that they meet its own timers anywhere.
_REST_BEFORE_INGRESS = (0.05, 0.15)
_REST_BEFORE_LB = (0.15, 0.30)
_MORE_REST_A_NAME = 10e-6
_TOUCHES = 100


def measure(api: Api, daemon: Daemon, names: int, events: int) -> Iterator[Figure]:
    """Measure Ingresses and load balancers coming and going, `events` of each."""
    more = names * _MORE_REST_A_NAME
    created, deleted = _ingresses(_Stopwatch(api, _REST_BEFORE_INGRESS, more), daemon, events)
    yield _figure("Ingress created: hosts file renamed", names, created)
    yield _figure("Ingress deleted: hosts file renamed", names, deleted)
    created, deleted = _load_balancers(_Stopwatch(api, _REST_BEFORE_LB, more), daemon, events)
    yield _figure("LB created: DNAT element in the kernel", names, created)
    yield _figure("LB deleted: DNAT element gone", names, deleted)


def measure_api(api: Api) -> Figure:
    """Measure what every latency holds of the simulated API: a change until a bare client has read it."""
    lines = api.bare_watch()
    stopwatch = _Stopwatch(api, (0.01, 0.03))

    def read() -> float:
        next(lines)
        return time.monotonic()

    # The first is not timed: with it the stream begins.
    seconds = [stopwatch.time(api.touch, read) for _ in range(_TOUCHES + 1)][1:]
    lines.close()
    return Figure(PART, "of which the simulated API: a bare watch", "ms", None, spread(seconds))


def _figure(what: str, names: int, seconds: list[float]) -> Figure:
    return Figure(PART, what, "ms", names, spread(seconds), _GOALS.get((what, names)))


class _Stopwatch:
    """Times one event after another.

    Args:
        api: where they happen.
        rest: seconds between them, from and to.
        more: seconds on top of that.
    """

    def __init__(self, api: Api, rest: tuple[float, float], more: float = 0.0) -> None:
        self.api = api
        self.dice = random.Random(1)  # noqa: S311 - spreads events, guards nothing
        self._rest = rest
        self._more = more

    def time(self, send: Callable[[], None], await_moment: Callable[[], float]) -> float:
        """Rest a little; then give the seconds from before the request until the moment waited for."""
        time.sleep(self._more + self.dice.uniform(*self._rest))
        began = time.monotonic()
        send()
        moment = await_moment()
        self.api.answered()
        return moment - began


def _ingresses(stopwatch: _Stopwatch, daemon: Daemon, events: int) -> tuple[list[float], list[float]]:
    api = stopwatch.api
    created, deleted = [], []
    with HostsFileWitness(daemon.hosts_file) as witness:
        for number in range(events + 1):
            name = f"site-{stopwatch.dice.randrange(100_000):05}-new-{number}"
            line = f"\t{host_of(name)}\n".encode()
            created.append(
                stopwatch.time(partial(api.create_ingress, name), partial(witness.await_with, line))
            )
            deleted.append(
                stopwatch.time(partial(api.delete_ingress, name), partial(witness.await_without, line))
            )
    # Not the first: in its first five seconds, the agent removes nothing that a missing kind could claim.
    return created[1:], deleted[1:]


def _load_balancers(stopwatch: _Stopwatch, daemon: Daemon, events: int) -> tuple[list[float], list[float]]:
    api = stopwatch.api
    created, deleted = [], []
    with DnatWitness(daemon.node) as witness:
        stands = partial(witness.wait, NEW_ELEMENT, LB_ADDRESS)
        gone = partial(witness.wait, DELETED_ELEMENT, LB_ADDRESS)
        for _ in range(events):
            created.append(stopwatch.time(api.create_load_balancer, stands))
            deleted.append(stopwatch.time(api.delete_load_balancer, gone))
    return created, deleted
