from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.coredns.coredns_reconciler import CoreDnsReconciler
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import ApiServer, faults
from tests.cli.command_line import Ask
from tests.coredns import corpus
from tests.coredns.cluster import CONFIG, CONFIG_TEXT, corefile, fill, put
from tests.coredns.resolving import model_answer

Commands = Callable[..., tuple[int, str, str]]


@pytest.fixture
def coredns(api: ApiServer, ask: Ask, tmp_path: Path) -> Commands:
    """Calls `nodeagent coredns`; returns its exit code, standard output and standard error."""
    fill(api)
    config = tmp_path / "nodeagent.yaml"
    config.write_text(CONFIG_TEXT)

    def call(command: str, *options: str) -> tuple[int, str, str]:
        reply = ask(f"coredns {command}", "--config", str(config), *options)
        return reply.exit_code, reply.stdout, reply.stderr

    return call


def test_plan_shows_a_diff_with_reasons_and_changes_nothing(api: ApiServer, coredns: Commands) -> None:
    code, out, err = coredns("plan")
    assert (code, err) == (2, "")
    assert "served app.example.com (Ingress default/site): covered by hosts.allow: example.com" in _words(out)
    lines = [line.removeprefix("  ") for line in out.splitlines()]
    assert {"--- kube-system/coredns/Corefile", "+    # END nodeagent"} <= set(lines)
    assert "to change: kube-system/coredns" in lines[-1]
    assert corefile(api) == corpus.corefile("kubeadm")


def _words(out: str) -> str:
    return " ".join(out.split())


def test_plan_in_sync(api: ApiServer, coredns: Commands) -> None:
    api.store.delete("ingresses", "site", "default")
    code, out, _ = coredns("plan")
    assert (code, "ConfigMap" in out) == (0, False)


def test_plan_that_cant_be_made_is_an_error(api: ApiServer, coredns: Commands) -> None:
    put(api, {"Corefile": ".:53 {\n"})
    code, out, err = coredns("plan")
    assert (code, out) == (1, "")
    assert "kube-system/coredns: line 1: " in err


def test_plan_with_adopt_replaces_hairpin_proxys_lines(api: ApiServer, coredns: Commands) -> None:
    put(api, {"Corefile": corpus.corefile("hairpin-proxy")})
    assert "left to hairpin-proxy's line 2 of the Corefile" in _words(coredns("plan")[1])
    _, out, _ = coredns("plan", "--adopt")
    removed = [line for line in out.splitlines() if line.startswith("  -    rewrite")]
    assert len(removed) == 2


@pytest.fixture
def written(api: ApiServer, coredns: Commands, connecting: Callable[[], Connection]) -> str:
    """The Corefile in which a controller's pass has written the names."""
    cluster = read_cluster(connecting(), "n1")
    CoreDnsReconciler(connecting(), ApiServers()).reconcile(cluster, {}, CONFIG)
    return corefile(api)


def test_cleanup_restores_byte_for_byte_and_twice_is_once(
    api: ApiServer, coredns: Commands, written: str
) -> None:
    assert written != corpus.corefile("kubeadm")
    code, out, _ = coredns("cleanup")
    assert (code, "ConfigMap kube-system/coredns: " in out) == (0, True)
    assert corefile(api) == corpus.corefile("kubeadm")
    code, out, _ = coredns("cleanup")
    assert (code, "ConfigMap" in out) == (0, False)


def test_a_damaged_block_is_not_guessed_at(api: ApiServer, coredns: Commands, written: str) -> None:
    damaged = written.replace("    # END nodeagent\n", "")
    put(api, {"Corefile": damaged})
    code, _, err = coredns("cleanup")
    assert code == 1
    assert "kube-system/coredns/Corefile: line 2: unmatched marker" in err
    assert corefile(api) == damaged


def test_a_cleanup_that_ends_in_the_middle_says_that_the_rest_is_left(
    api: ApiServer, coredns: Commands, written: str
) -> None:
    put(api, {"a.override": written}, "coredns-custom")
    api.faults.add(faults.Answer(500), verbs=("update",), path="*/coredns-custom", times=None)
    code, out, err = coredns("cleanup")
    assert code == 1
    assert "ConfigMap kube-system/coredns: " in out
    assert "the rest is left: run it again" in err


def test_cleanup_in_a_cluster_without_coredns_finds_nothing(api: ApiServer, coredns: Commands) -> None:
    api.store.delete("configmaps", "coredns", "kube-system")
    assert coredns("cleanup")[0] == 0


def test_what_is_written_is_what_plan_showed(coredns: Commands, request: pytest.FixtureRequest) -> None:
    shown = [line[3:] for line in coredns("plan")[1].splitlines() if line.startswith("  +")][1:]
    text: str = request.getfixturevalue("written")
    assert len(shown) > 10
    assert all(line in text for line in shown)
    assert model_answer(text, "app.example.com").startswith("169.254.66.")
