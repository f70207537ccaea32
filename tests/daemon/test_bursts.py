"""Many events make few applies; a lone one is applied at once."""

from __future__ import annotations

import time
from signal import SIGCONT, SIGSTOP
from typing import TYPE_CHECKING

from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import names
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

pytestmark = needs_root

_BURST = 1000
_MOST_APPLIES = 20
"""Two to four on an idle machine, eleven were seen on a busy one: fewer than one for 50 events."""
_LONE = 10
_LONE_SECONDS = 0.5
"""An apply takes some ten milliseconds; the rest is for a busy machine."""


def test_a_burst_of_a_thousand_events_makes_a_handful_of_applies(
    world: World, api: ClusterApi, agent: RunningAgent
) -> None:
    """Coming, changing and going: the hosts file is written a few times, and in the end it is right."""
    node = world.node1

    def burst(what: str, make: Callable[[], object], *, generation: str, wanted: int) -> None:
        applies = _applies(agent)
        events = agent.metric("nodeagent_event_to_applied_seconds_count")
        # All of them wait for it, however slowly a busy machine makes them.
        agent.signal(SIGSTOP)
        try:
            make()
        finally:
            agent.signal(SIGCONT)
        began = time.monotonic()
        agent.await_that(lambda: _count(node, generation) == wanted, f"all names {what}")
        took = time.monotonic() - began
        agent.await_that(
            lambda: agent.metric("nodeagent_event_to_applied_seconds_count") > events, "the pass being told"
        )
        made = _applies(agent) - applies
        print(f"{_BURST} Ingresses {what}: {made:g} applies in {took:.2f} s")
        assert 1 <= made <= _MOST_APPLIES, what

    burst("created", lambda: _apply(api, "one"), generation="one", wanted=_BURST)
    burst("changed", lambda: _apply(api, "two"), generation="two", wanted=_BURST)
    burst("deleted", lambda: _delete(api), generation="two", wanted=0)
    assert names(node).keys() == {addresses.SITE, addresses.REGISTRY}


def test_a_lone_event_is_applied_at_once(world: World, api: ClusterApi, agent: RunningAgent) -> None:
    """Each of some events that come one by one is in the hosts file within milliseconds, by one apply."""
    node = world.node1
    latencies = []
    for number in range(_LONE):
        applies = _applies(agent)
        began = time.monotonic()
        api.store.create(ingress(f"lone-{number}", [f"lone-{number}.example.test"]))
        agent.await_that(lambda name=f"lone-{number}.example.test": name in names(node), "the name")
        latencies.append(time.monotonic() - began)
        agent.await_that(lambda count=applies: _applies(agent) > count, "the apply being told")
        assert _applies(agent) == applies + 1
    latencies.sort()
    print(f"a lone event: {latencies[_LONE // 2]:.3f} s in the middle, {latencies[-1]:.3f} s at worst")
    assert latencies[_LONE // 2] < _LONE_SECONDS, latencies


def _count(node: Host, generation: str) -> int:
    return sum(f".{generation}." in name for name in names(node))


def _applies(agent: RunningAgent) -> float:
    return agent.metric("nodeagent_applies_total", component="hosts")


def _apply(api: ClusterApi, generation: str) -> None:
    for number in range(_BURST):
        api.store.apply(ingress(f"burst-{number}", [f"burst-{number}.{generation}.example.test"]))


def _delete(api: ClusterApi) -> None:
    for number in range(_BURST):
        api.store.delete("ingresses", f"burst-{number}", "default")
