"""Thousands of random writes under random faults: in the end the node is as a fresh plan says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.apiserver import ApiError, Ending, faults
from tests.daemon.made_objects import ingress, made_address, made_service
from tests.daemon.managed_state import names, read_managed_state
from tests.daemon.settings import MADE_COUNT, MADE_NAMESPACE
from tests.testbed.addresses import LOAD_BALANCER_IP
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.world import World

pytestmark = needs_root

_SEED = 20200229
_OPERATIONS = 1000
_OPERATIONS_OF_A_SOAK = 5000
_ROUND = 200
_INGRESSES = 120
_NAMES = 90
_SERVICE_SHARE = 0.08
_SECONDS = 60.0


class Writer:
    """Writes at random: few objects and few names, so that they meet often."""

    def __init__(self, api: ClusterApi, seed: int) -> None:
        self._api = api
        self.dice = random.Random(seed)  # noqa: S311 - a test's dice

    def write(self) -> None:
        """Do one write."""
        if self.dice.random() < _SERVICE_SHARE:
            self._write_service(self.dice.randrange(MADE_COUNT))
        else:
            self._write_ingress(f"i{self.dice.randrange(_INGRESSES)}")

    def spoil(self) -> None:
        """Let many of the next events come in pieces."""
        pieces = faults.SplitLines(self.dice.randrange(1, 40))
        self._api.faults.add(pieces, path="*/ingresses", times=self.dice.randrange(1, 60))

    def interrupt(self) -> None:
        """Let streams end, in one of the ways in which they do."""
        api = self._api
        match self.dice.randrange(5):
            case 0:
                api.faults.add(faults.CutLine(reset=self.dice.random() < 0.5), times=1)
            case 1:
                api.faults.add(faults.Answer(500), verbs=["list", "watch"], times=1)
                api.end_watches(Ending.DROP)
            case 2:
                api.faults.add(faults.ErrorLine(), times=1)
            case 3:
                api.end_watches(self.dice.choice([Ending.CLEAN, Ending.DROP, Ending.RESET]))
                api.compact()
            case _:
                api.end_watches(self.dice.choice([Ending.CLEAN, Ending.DROP, Ending.RESET]))

    def _write_service(self, number: int) -> None:
        if self.dice.random() < 0.3:
            self._delete("services", f"lb-{number}", MADE_NAMESPACE)
            return
        ports = self.dice.sample([80, 443, 8443, 9000], self.dice.randrange(1, 4))
        # Some move, and some of these to where another one is.
        address = made_address(self.dice.choice([number, number, number + 50, (number + 1) % MADE_COUNT]))
        made = made_service(number, ports=ports, address=address)
        if self.dice.random() < 0.1:
            made["status"] = {"loadBalancer": {}}
        if self.dice.random() < 0.05:
            made["spec"]["ports"] = "broken"
        self._api.store.apply(made)

    def _write_ingress(self, name: str) -> None:
        if self.dice.random() < 0.3:
            self._delete("ingresses", name, "default")
            return
        hosts = [f"h{self.dice.randrange(_NAMES)}.example.test" for _ in range(self.dice.randrange(1, 4))]
        hosts += self.dice.choice([[], [], ["*.example.test"], ["foreign.example.org"], ["localhost"]])
        address = self.dice.choice([str(LOAD_BALANCER_IP), made_address(self.dice.randrange(MADE_COUNT))])
        made = ingress(name, list(dict.fromkeys(hosts)), address)
        if self.dice.random() < 0.02:
            made["spec"]["rules"] = "broken"
        self._api.store.apply(made)

    def delete_unusable(self) -> None:
        """Delete the objects that can't be used: while there is one, no plan says that all is in sync."""
        for plural in ("ingresses", "services"):
            for found in self._api.store.all(plural):
                if "broken" in found["spec"].values():
                    self._delete(plural, found["metadata"]["name"], found["metadata"]["namespace"])

    def _delete(self, plural: str, name: str, namespace: str) -> None:
        try:
            self._api.store.delete(plural, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise


@pytest.mark.timeout(180)
def test_in_the_end_the_node_is_as_a_fresh_plan_says(
    world: World,
    api: ClusterApi,
    agent: RunningAgent,
    soak: bool,  # noqa: FBT001
) -> None:
    """After many writes, with events repeated and streams cut, and histories compacted: the same state."""
    node = world.node1
    operations = _OPERATIONS_OF_A_SOAK if soak else _OPERATIONS
    print(f"seed {_SEED}")
    writer = Writer(api, _SEED)
    # Each stream brings something soon: an agent whose watches bring nothing waits longer and longer.
    api.options.bookmark_interval = 0.05
    for number in range(operations // _ROUND):
        writer.interrupt()
        for done in range(_ROUND):
            writer.write()
            if done % (_ROUND // 5) == 0:
                writer.spoil()
        # Each round is seen before the next begins: otherwise all would be coalesced into one or two.
        mark = f"round-{number}.example.test"
        api.store.apply(ingress("mark", [mark]))
        agent.await_that(lambda mark=mark: mark in names(node), mark, seconds=_SECONDS)
    api.faults.clear()
    writer.delete_unusable()
    agent.await_in_sync(seconds=_SECONDS)

    document = agent.plan("-o", "json").document
    assert document["inSync"] is True
    assert document["errors"] == {}
    standing = read_managed_state(node)
    assert standing.redirects == _planned_redirects(document)
    assert standing.names == _planned_names(document)
    assert standing.addresses == {address for one in _served(document) for address in one["relayAddresses"]}
    verdicts = {one["verdict"] for one in document["loadBalancers"]}
    applies = agent.metric("nodeagent_applies_total", component="hosts")
    restarts = agent.metric("nodeagent_watch_restarts_total", resource="ingresses")
    print(
        f"{operations} writes, {applies:g} applies of the hosts file, {restarts:g} watches restarted; "
        f"{len(standing.names)} names, {len(standing.redirects)} redirects, verdicts {sorted(verdicts)}"
    )
    assert standing.names
    assert len(standing.redirects) > 3, "some of the made load balancers are served in the end"


def _served(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document["loadBalancers"] if one["verdict"] == "served"]


def _planned_redirects(document: Mapping[str, Any]) -> dict[str, str]:
    """What the plan says of DNAT; a port that is another Service's is reported in the notes."""
    return {
        f"{address}:{port}": f"{one['relayAddresses'][0]}:{port}"
        for one in _served(document)
        for address in one["addresses"]
        for port in one["ports"]
        if not any(remark.startswith(f"{address}:{port}: ") for remark in one["remarks"])
    }


def _planned_names(document: Mapping[str, Any]) -> dict[str, str]:
    relays = {
        (one["service"]["namespace"], one["service"]["name"]): one["relayAddresses"][0]
        for one in _served(document)
    }
    return {
        one["name"]: relays[one["service"]["namespace"], one["service"]["name"]]
        for one in document["names"]
        if one["verdict"] == "served"
    }
