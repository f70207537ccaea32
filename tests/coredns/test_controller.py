"""The controller against a live API, turn by turn: pace, configuration, and what it says."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.coredns.controller import Controller, ControllerSettings
from nodeagent.coredns.managed_block import without_blocks
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.reflector import Timing
from tests.agent.scraping import read
from tests.apiserver import ApiServer, Rule, custom, faults
from tests.clock import Clock
from tests.coredns import corpus
from tests.coredns.cluster import CONFIG_TEXT, add_name, corefile, fill, put
from tests.coredns.resolving import PASSED_ON, model_answer
from tests.observe.serving import get
from tests.sources.kubernetes.watching import ingress_route
from tests.testbed.waiting import wait_until


class Driven:
    """A controller whose turns and whose time the test makes."""

    def __init__(self, connection: Connection, config: Path) -> None:
        self.clock = Clock()
        self.config = config
        settings = ControllerSettings("n1", config, ListenAddress("127.0.0.1:0"))
        self._controller = Controller(settings, read_config(config), connection, self.clock)
        self._controller.start()

    def turn(self) -> None:
        """Let two seconds pass, and make a turn."""
        self.clock.pass_by(2)
        self._controller.turn()

    def turn_until(self, holds: Callable[[], bool], what: str) -> None:
        """Make turns until something holds: objects arrive in threads of their own."""

        def held() -> bool:
            self.turn()
            return holds()

        wait_until(held, what, every=0.02)

    def await_object(self, word: str) -> None:
        """Wait, without a turn, until an object has arrived that has this word in it."""
        snapshot = self._controller._cluster.snapshot  # noqa: SLF001
        wait_until(lambda: word in str(snapshot()), f"{word} to arrive", every=0.02)

    def page(self, path: str) -> str:
        return get(self._controller.service.bound, path, headers="Host: localhost\r\n").body

    def configure(self, text: str) -> None:
        """Replace the configuration by one that was written a minute ago, as kubelet swaps its file."""
        new = self.config.with_suffix(".new")
        new.write_text(text)
        os.utime(new, (time.time() - 60,) * 2)
        new.rename(self.config)

    def stop(self) -> None:
        self._controller.stop()


@pytest.fixture
def start(
    api: ApiServer, connecting: Callable[[], Connection], tmp_path: Path
) -> Iterator[Callable[[], Driven]]:
    fill(api)
    config = tmp_path / "nodeagent.yaml"
    config.write_text(CONFIG_TEXT)
    with ExitStack() as stack:

        def started() -> Driven:
            made = Driven(connecting(), config)
            stack.callback(made.stop)
            return made

        yield started


def answers(api: ApiServer, name: str) -> Callable[[], bool]:
    return lambda: model_answer(corefile(api), name).startswith("169.254.66.")


def test_the_next_controller_takes_over_what_is_there(api: ApiServer, start: Callable[[], Driven]) -> None:
    """As after the death of its node: what CoreDNS has stays until then."""
    one = start()
    one.turn_until(answers(api, "app.example.com"), "the name to be answered")
    before = corefile(api)
    one.stop()
    assert corefile(api) == before
    add_name(api, "second.example.com")
    start().turn_until(answers(api, "second.example.com"), "the next one to write")
    assert answers(api, "app.example.com")()
    assert without_blocks(corefile(api)) == corpus.corefile("kubeadm")


def test_it_says_what_it_does(api: ApiServer, start: Callable[[], Driven]) -> None:
    one = start()
    assert one.page("/readyz").startswith("not ready")
    one.turn_until(answers(api, "app.example.com"), "the name to be answered")
    assert one.page("/readyz").startswith("ready\n")
    assert one.page("/healthz").startswith("alive")
    measured = read(one.page("/metrics").encode())
    assert time.time() - (measured.value("nodeagent_coredns_last_sync_timestamp_seconds") or 0) < 60


def test_what_it_may_not_read_is_said_with_the_rule_to_grant(
    api: ApiServer, start: Callable[[], Driven], caplog: pytest.LogCaptureFixture
) -> None:
    api.access.allow_only([Rule([""], ["services", "nodes"], ["list", "watch"])])
    one = start()
    rule = 'apiGroups: ["networking.k8s.io"], resources: ["ingresses"]'
    one.turn_until(lambda: rule in one.page("/readyz"), "the missing rule")
    assert any(rule in str(record.__dict__.get("fields")) for record in caplog.records)
    assert corefile(api) == corpus.corefile("kubeadm")


def test_a_reloaded_configuration_counts_and_one_that_moves_things_does_not(
    api: ApiServer, start: Callable[[], Driven]
) -> None:
    one = start()
    one.turn_until(answers(api, "app.example.com"), "the name to be answered")
    one.configure(CONFIG_TEXT.replace("[example.com]", "[example.com, example.org]"))
    add_name(api, "app.example.org")
    one.turn_until(answers(api, "app.example.org"), "the name that is allowed now")
    one.configure(CONFIG_TEXT + "coredns: {configMap: another}\n")
    api.store.delete("ingresses", "site", "default")
    gone = lambda: model_answer(corefile(api), "app.example.com") == PASSED_ON  # noqa: E731
    one.turn_until(gone, "the name to be withdrawn")
    assert answers(api, "app.example.org")()
    reloads = read(one.page("/metrics").encode())
    assert reloads.value("nodeagent_coredns_config_reloads_total", result="rejected") == 1


def test_a_corefile_that_cant_be_edited_is_an_error_until_it_can(
    api: ApiServer, start: Callable[[], Driven]
) -> None:
    put(api, {"Corefile": ".:53 {\n"})
    one = start()
    broken = "kube-system/coredns: line 1: its brace is never closed"
    one.turn_until(lambda: broken in one.page("/readyz"), "the error")
    put(api, {"Corefile": corpus.corefile("kubeadm")})
    one.turn_until(answers(api, "app.example.com"), "the name to be answered")
    assert "coredns: ok" in one.page("/readyz")


def test_a_hostname_that_flips_all_the_time_costs_a_write_per_minute_in_the_end(
    api: ApiServer, start: Callable[[], Driven]
) -> None:
    """Each write makes every CoreDNS reload; kubelets read no more than one per minute anyway."""
    one = start()
    one.turn_until(answers(api, "app.example.com"), "the name to be answered")
    written = [one.clock.now]
    before = corefile(api)
    for number in range(7):
        add_name(api, f"flip-{number}.example.com")
        one.await_object(f"flip-{number}.example.com")
        one.turn_until(answers(api, f"flip-{number}.example.com"), "the next write")
        assert corefile(api) != before
        before = corefile(api)
        written.append(one.clock.now)
    pauses = [later - earlier for earlier, later in pairwise(written)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 12
    assert 60 <= pauses[-1] <= 64


def test_what_could_not_be_read_yet_is_withdrawn_from_nobody(
    api: ApiServer, start: Callable[[], Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API group that is down while a controller starts: the ConfigMap is not written, and it says so."""
    api.store.serve(*custom("traefik.io", "v1alpha1", "IngressRoute"))
    api.store.create(ingress_route("route.example.com"))
    one = start()
    one.turn_until(answers(api, "route.example.com"), "the name to be answered")
    one.stop()
    before = corefile(api)
    down = api.faults.add(faults.Answer(503), path="/apis/traefik.io/v1alpha1", times=None)
    impatient = lambda: Timing(optional_wait=0.1)  # noqa: E731
    monkeypatch.setattr("nodeagent.sources.kubernetes.cluster.Timing", impatient)
    two = start()
    add_name(api, "second.example.com")
    two.turn_until(lambda: "/apis/traefik.io/v1alpha1" in two.page("/readyz"), "what is not read")
    assert two.page("/readyz").startswith("not ready")
    for _ in range(20):
        two.turn()
    assert corefile(api) == before
    api.faults.remove(down)
    two.turn_until(answers(api, "second.example.com"), "the new name")
    assert answers(api, "route.example.com")()
