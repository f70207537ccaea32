"""The controller against a live API, turn by turn: role, pace, configuration, and what it says."""

import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.coredns.controller import Controller, ControllerSettings
from nodeagent.coredns.managed_block import without_blocks
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from tests.agent.scraping import read
from tests.apiserver import ApiServer, Rule
from tests.clock import Clock
from tests.coredns import corpus
from tests.coredns.cluster import CONFIG_TEXT, add_name, corefile, fill, put
from tests.coredns.resolving import PASSED_ON, Question, model_answer
from tests.runtime.serving import get
from tests.testbed.waiting import wait_until

LEASE = ObjectRef("Lease", "nodeagent", "nodeagent-coredns")


class Controllers:
    """Controllers whose turns and whose time the test makes."""

    def __init__(self, api: ApiServer, connecting: Callable[[], Connection], folder: Path) -> None:
        self.clock = Clock()
        self.config = folder / "nodeagent.yaml"
        self.config.write_text(CONFIG_TEXT)
        self.api = api
        self._connecting = connecting
        self.started: list[Controller] = []

    def start(self, name: str) -> Controller:
        """Start one, without the thread of its Lease."""
        settings = ControllerSettings(name, "n1", LEASE, self.config, ListenAddress("127.0.0.1:0"))
        made = Controller(settings, read_config(self.config), self._connecting(), self.clock)
        made.start()
        self.started.append(made)
        return made

    def turn(self, controller: Controller, seconds: float = 2.0) -> None:
        """Let time pass, try for the Lease, and make a turn that does not wait."""
        self.clock.pass_by(seconds)
        controller.elector.try_once()
        controller.triggers.wake()
        controller.driver.turn()

    def turn_until(self, controller: Controller, holds: Callable[[], bool], what: str) -> None:
        """Make turns until something holds: objects arrive in threads of their own."""

        def held() -> bool:
            self.turn(controller)
            return holds()

        wait_until(held, what, every=0.02)

    def page(self, controller: Controller, path: str) -> str:
        """A page of its own."""
        return get(controller.service.bound, path, headers="Host: localhost\r\n").body


@pytest.fixture
def controllers(
    api: ApiServer, connecting: Callable[[], Connection], tmp_path: Path
) -> Iterator[Controllers]:
    fill(api)
    made = Controllers(api, connecting, tmp_path)
    yield made
    for controller in made.started:
        controller.stop()


def answers(api: ApiServer, name: str) -> Callable[[], bool]:
    """Whether the Corefile answers a name with a relay address."""
    return lambda: model_answer(corefile(api), Question(name)).startswith("169.254.66.")


def test_one_of_two_writes_and_the_other_takes_over_when_the_first_hangs(
    api: ApiServer, controllers: Controllers
) -> None:
    one, two = controllers.start("one"), controllers.start("two")
    controllers.turn_until(one, answers(api, "app.example.com"), "the name to be answered")
    controllers.turn(two)
    assert "standby: one holds Lease nodeagent/nodeagent-coredns" in controllers.page(two, "/readyz")

    # The first one makes no turn and renews nothing, as in a partition or on a machine that sleeps.
    put(api, {"Corefile": corpus.corefile("minikube")})
    add_name(api, "second.example.com")
    controllers.clock.pass_by(15)
    controllers.turn_until(two, answers(api, "second.example.com"), "the other one to write")
    before = corefile(api)
    add_name(api, "third.example.com")
    controllers.turn(one)
    assert corefile(api) == before
    assert "standby: two holds Lease" in controllers.page(one, "/readyz")

    # An orderly end releases the Lease and leaves the names.
    two.elector.stop()
    assert api.store.get("leases", LEASE.name, LEASE.namespace)["spec"]["holderIdentity"] == ""
    controllers.turn_until(one, answers(api, "third.example.com"), "the first one to write again")
    assert without_blocks(corefile(api)) == corpus.corefile("minikube")


def test_it_says_what_it_does(api: ApiServer, controllers: Controllers) -> None:
    one = controllers.start("one")
    assert controllers.page(one, "/readyz").startswith("not ready: starting")
    controllers.turn_until(one, answers(api, "app.example.com"), "the name to be answered")
    assert controllers.page(one, "/readyz").startswith("ready\nrole: writer")
    assert controllers.page(one, "/healthz").startswith("alive")
    measured = read(controllers.page(one, "/metrics").encode())
    assert measured.value("nodeagent_coredns_leader") == 1
    assert measured.value("nodeagent_coredns_names") == 1
    assert measured.value("nodeagent_coredns_pass_failures_total") == 0
    assert time.time() - (measured.value("nodeagent_coredns_last_sync_timestamp_seconds") or 0) < 60


def test_what_it_may_not_read_is_said_with_the_rule_to_grant(
    api: ApiServer, controllers: Controllers, caplog: pytest.LogCaptureFixture
) -> None:
    api.access.allow_only(
        [
            Rule([""], ["services", "nodes"], ["list", "watch"]),
            Rule(["coordination.k8s.io"], ["leases"], ["get", "create", "update"]),
        ]
    )
    one = controllers.start("one")
    rule = 'apiGroups: ["networking.k8s.io"], resources: ["ingresses"]'
    controllers.turn_until(one, lambda: rule in controllers.page(one, "/readyz"), "the missing rule")
    assert any(rule in str(record.__dict__.get("fields")) for record in caplog.records)
    assert corefile(api) == corpus.corefile("kubeadm")


def test_a_reloaded_configuration_counts_and_one_that_moves_things_does_not(
    api: ApiServer, controllers: Controllers
) -> None:
    one = controllers.start("one")
    controllers.turn_until(one, answers(api, "app.example.com"), "the name to be answered")
    _configure(controllers, CONFIG_TEXT.replace("[example.com]", "[example.com, example.org]"))
    add_name(api, "app.example.org")
    controllers.turn_until(one, answers(api, "app.example.org"), "the name that is allowed now")
    _configure(controllers, CONFIG_TEXT + "coredns: {configMap: another}\n")
    api.store.delete("ingresses", "site", "default")
    gone = lambda: model_answer(corefile(api), Question("app.example.com")) == PASSED_ON  # noqa: E731
    controllers.turn_until(one, gone, "the name to be withdrawn")
    assert answers(api, "app.example.org")()
    reloads = read(controllers.page(one, "/metrics").encode())
    assert reloads.value("nodeagent_coredns_config_reloads_total", result="rejected") == 1


def test_a_corefile_that_cant_be_edited_is_an_error_until_it_can(
    api: ApiServer, controllers: Controllers
) -> None:
    put(api, {"Corefile": ".:53 {\n"})
    one = controllers.start("one")
    broken = "kube-system/coredns: line 1: its brace is never closed"
    controllers.turn_until(one, lambda: broken in controllers.page(one, "/readyz"), "the error")
    put(api, {"Corefile": corpus.corefile("kubeadm")})
    controllers.turn_until(one, answers(api, "app.example.com"), "the name to be answered")
    assert "coredns: ok" in controllers.page(one, "/readyz")
    failures = read(controllers.page(one, "/metrics").encode())
    assert failures.value("nodeagent_coredns_pass_failures_total") != 0


def test_a_hostname_that_flips_all_the_time_costs_a_write_per_minute_in_the_end(
    api: ApiServer, controllers: Controllers
) -> None:
    """Each write makes every CoreDNS reload; kubelets read no more than one per minute anyway."""
    one = controllers.start("one")
    controllers.turn_until(one, answers(api, "app.example.com"), "the name to be answered")
    written = [controllers.clock.now]
    before = corefile(api)
    for number in range(7):
        add_name(api, f"flip-{number}.example.com")
        controllers.turn_until(one, answers(api, f"flip-{number}.example.com"), "the next write")
        assert corefile(api) != before
        before = corefile(api)
        written.append(controllers.clock.now)
    pauses = [later - earlier for earlier, later in pairwise(written)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 4
    assert 60 <= pauses[-1] <= 64


def _configure(controllers: Controllers, text: str) -> None:
    """Replace the configuration by one that was written a minute ago, as kubelet swaps a ConfigMap's file."""
    new = controllers.config.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (time.time() - 60,) * 2)
    new.rename(controllers.config)
