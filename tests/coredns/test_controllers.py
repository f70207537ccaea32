"""Two controllers as programs: one writes, and whatever becomes of it, never both."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.coredns.corefile.managed_block import without_blocks
from tests.agent.reporting.scraping import read
from tests.apiserver import ApiServer, Rule
from tests.coredns import corpus
from tests.coredns.cluster import CONFIG_TEXT, add_name, corefile, fill, put
from tests.coredns.resolving import PASSED_ON, Question, model_answer
from tests.coredns.running import POLL_SECONDS, SECONDS, Running
from tests.testbed.waiting import wait_until

Start = Callable[[str], Running]


@pytest.fixture
def start(api: ApiServer, tmp_path: Path) -> Iterator[Start]:
    """Start a controller; what still runs in the end is killed."""
    fill(api)
    config = tmp_path / "nodeagent.yaml"
    config.write_text(CONFIG_TEXT)
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    with ExitStack() as stack:

        def begin(name: str) -> Running:
            running = Running(name, tmp_path, kubeconfig, config)
            stack.callback(running.process.wait)
            stack.callback(running.process.kill)
            return running

        yield begin


def answered(api: ApiServer, name: str) -> None:
    """Return when the Corefile answers a name with a relay address."""
    wait_until(
        lambda: model_answer(corefile(api), Question(name)).startswith("169.254.66."),
        f"{name} to be answered",
        seconds=SECONDS,
        every=POLL_SECONDS,
    )


def holder(api: ApiServer) -> str:
    """Who holds the lease."""
    found: str = api.store.get("leases", "nodeagent-coredns", "nodeagent")["spec"]["holderIdentity"]
    return found


@pytest.mark.long
def test_a_killed_leader_is_followed_and_a_halted_one_that_goes_on_writes_nothing(
    api: ApiServer, start: Start
) -> None:
    one = start("one")
    answered(api, "app.example.com")
    two = start("two")
    assert "one holds Lease nodeagent/nodeagent-coredns" in two.wait_until_ready()

    # Halted in the middle of whatever it did, as by a partition or a machine that sleeps.
    one.send(signal.SIGSTOP)
    two.wait_for("Became the leader; this controller writes")
    put(api, {"Corefile": corpus.corefile("minikube")})
    add_name(api, "second.example.com")
    one.send(signal.SIGCONT)
    one.wait_for("Lost the Lease; this controller is on standby")
    answered(api, "second.example.com")
    assert holder(api) == "two"
    assert len(one.said("Wrote a ConfigMap")) == 1
    assert without_blocks(corefile(api)) == corpus.corefile("minikube")

    # Killed without a word: the other one waits for the lease's end, and takes over.
    two.end(signal.SIGKILL)
    one.wait_for("Became the leader; this controller writes", count=2)
    add_name(api, "third.example.com")
    answered(api, "third.example.com")
    assert holder(api) == "one"

    # An orderly end gives the lease back, and leaves the names.
    assert one.end() == 0
    assert holder(api) == ""
    assert model_answer(corefile(api), Question("third.example.com")).startswith("169.254.66.")


def test_what_it_may_not_read_is_said_with_the_rule_to_grant(api: ApiServer, start: Start) -> None:
    api.access.allow_only(
        [
            Rule([""], ["services", "nodes"], ["list", "watch"]),
            Rule(["coordination.k8s.io"], ["leases"], ["get", "create", "update"]),
        ]
    )
    one = start("one")
    rule = 'apiGroups: ["networking.k8s.io"], resources: ["ingresses"]'
    wait_until(
        lambda: any(rule in str(line.get("reason")) for line in one.lines()), "its word", seconds=SECONDS
    )
    one.wait_for("Became the leader; this controller writes")
    assert rule in one.page("/readyz")[1]
    assert corefile(api) == corpus.corefile("kubeadm")


def test_a_controller_follows_its_configuration_and_says_what_it_does(
    api: ApiServer, start: Start, tmp_path: Path
) -> None:
    one = start("one")
    answered(api, "app.example.com")
    assert "ready\nrole: writer" in one.wait_until_ready()
    assert one.page("/healthz")[0] == 200
    measured = read(one.page("/metrics")[1].encode())
    assert measured.value("nodeagent_coredns_leader") == 1
    assert measured.value("nodeagent_coredns_names") == 1
    assert measured.value("nodeagent_coredns_pass_failures_total") == 0
    assert time.time() - (measured.value("nodeagent_coredns_last_sync_timestamp_seconds") or 0) < 60
    _configure(tmp_path, CONFIG_TEXT.replace("allow: [example.com]", "allow: [example.com, example.org]"))
    add_name(api, "app.example.org")
    answered(api, "app.example.org")
    _configure(tmp_path, CONFIG_TEXT + "coredns:\n  configMap: another\n")
    api.store.delete("ingresses", "site", "default")
    one.wait_for("Rejected the configuration; the old one stays active")
    (refusal,) = one.said("Rejected the configuration; the old one stays active")
    assert "coredns.configMap can't change while the controller runs" in refusal["reason"]
    wait_until(
        lambda: model_answer(corefile(api), Question("app.example.com")) == PASSED_ON,
        "the name to go",
        seconds=SECONDS,
        every=POLL_SECONDS,
    )
    served = [line for line in one.said("Hostname served") if line["name"] == "app.example.org"]
    assert [line["reason"] for line in served] == ["covered by hosts.allow: example.org"]


def _configure(folder: Path, text: str) -> None:
    """Replace the configuration by one that was written a minute ago, as kubelet swaps a ConfigMap's file."""
    new = folder / "new.yaml"
    new.write_text(text)
    os.utime(new, (time.time() - 60,) * 2)
    new.rename(folder / "nodeagent.yaml")
