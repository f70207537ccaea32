"""Thousands of random writes under random faults: in the end it is as a fresh list says."""

import random
import threading
from contextlib import suppress
from functools import partial

import pytest

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.reflector import Timing
from tests.apiserver import GATEWAY_API, ApiError, ApiServer, Ending, Object, faults, objects
from tests.cases import cases_of

from .watching import NODE, Watched, until, watching

TROUBLES = cases_of(__file__, "cases.yaml")["troubles"]
RELAY = ("hairpin-proxy", "relay")
TIMING = Timing(idle_timeout=0.3, shortest_watch=0.05, backoff=(0.002, 0.02), discovery=(0.05, 0.1))
OPERATIONS = 500
OPERATIONS_OF_A_SOAK = 5000


class Chaos:
    """Random writes to a server and random trouble with it, all from one seed."""

    def __init__(self, api: ApiServer, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)  # noqa: S311 - a test's dice

    def write(self) -> None:
        make = self.random.choice(
            [self._ingress, self._ingress, self._service, self._slice, self._node, self._route]
        )
        made = make()
        metadata = made["metadata"]
        plural = self.api.store.resource_of(made).plural
        name, place = metadata["name"], metadata.get("namespace", "")
        if self.random.random() < 0.3:
            with suppress(ApiError):  # there may be none
                self.api.store.delete(plural, name, place)
        else:
            self.api.store.apply(made)

    def _address(self) -> str:
        return f"192.0.2.{self.random.randrange(1, 200)}"

    def _ingress(self) -> Object:
        number = self.random.randrange(20)
        made = objects.ingress(
            f"i{number}", f"ns{number % 3}", hosts=[f"h{self.random.randrange(9)}.example"]
        )
        if self.random.random() < 0.05:
            made["spec"]["rules"] = "broken"
        return made

    def _route(self) -> Object:
        made = objects.http_route(
            f"r{self.random.randrange(9)}", hostnames=[f"h{self.random.randrange(9)}.example"]
        )
        if self.random.random() < 0.05:
            made["spec"]["parentRefs"] = "broken"
        return made

    def _service(self) -> Object:
        if self.random.random() < 0.2:
            return objects.service(RELAY[1], RELAY[0], cluster_ips=[self._address()])
        kind = self.random.choice(["LoadBalancer", "LoadBalancer", "ClusterIP"])
        return objects.service(f"s{self.random.randrange(8)}", kind=kind, addresses=[self._address()])

    def _slice(self) -> Object:
        endpoints = [
            objects.Endpoint(self._address(), NODE, ready=self.random.random() < 0.5)
            for _ in range(self.random.randrange(3))
        ]
        name = self.random.choice([RELAY[1], "other"])
        return objects.endpoint_slice(
            f"{name}-{self.random.randrange(3)}", name, RELAY[0], endpoints=endpoints
        )

    def _node(self) -> Object:
        cidr = f"10.244.{self.random.randrange(4)}.0/24"
        return objects.node(self.random.choice([NODE, "other"]), pod_cidrs=[cidr])

    def trouble(self) -> None:
        fault = self.random.choice(TROUBLES)
        if fault is not None:
            plural = self.random.choice(["ingresses", "services", "endpointslices", "nodes", "httproutes"])
            self.api.faults.add(faults.made(**fault), path=f"*/{plural}", times=self.random.randrange(1, 4))
            return
        match self.random.randrange(4):
            case 0:
                self.api.store.compact()
            case 1:
                # As good as away: every request, also a list begun by another fault, is cut for a while.
                self.api.faults.add(faults.Disconnect(), times=10)
            case _:
                self.api.end_watches(self.random.choice([Ending.CLEAN, Ending.DROP, Ending.RESET]))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_writes_under_faults_end_as_a_fresh_list(
    api: ApiServer, connection: Connection, seed: int, soak: bool
) -> None:
    chaos = Chaos(api, seed)
    breath = threading.Event()
    operations = OPERATIONS_OF_A_SOAK if soak else OPERATIONS
    api.bookmark_interval = 0.05
    api.store.serve(*GATEWAY_API)
    with watching(api, connection, RELAY, TIMING) as watched:
        for number in range(operations):
            chaos.write()
            if number % 10 == 0:
                chaos.trouble()
                # Writes take no time here: without a breath all would be over before the first relist.
                breath.wait(0.004)
            if number % 500 == 499:
                api.faults.clear()
                times = (number + 1) // 500
                until(partial(_all_listed_again, chaos, watched, times), f"{times} further lists of each")
                watched.until_settled()
        until(lambda: all(state.error is None for state in watched.cluster.states()), "all to be well")
        assert "httproutes.gateway.networking.k8s.io" in {state.name for state in watched.watched()}
        # The watch after the last list may not have begun yet.
        until(
            lambda: min(state.restarts for state in watched.watched()) >= operations // 500, "further watches"
        )


def _all_listed_again(chaos: Chaos, watched: Watched, times: int) -> bool:
    """Whether that was so often; if not, all that is watched expires, as it has not for each by chance."""
    if all(state.relists >= times for state in watched.watched()):
        return True
    chaos.api.end_watches(Ending.CLEAN)
    chaos.write()
    chaos.api.store.compact()
    return False
