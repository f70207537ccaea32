"""Our block never outgrows its ConfigMap: each namespace has its share, and a withdrawal always fits."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from nodeagent.config.options import Config
from nodeagent.coredns.editing import Edits, decide
from nodeagent.coredns.managed_block import block_names
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from tests.coredns import corpus
from tests.coredns.corpus import desired
from tests.coredns.resolving import PASSED_ON, model_answer

MAIN = "kube-system/coredns"
CONFIG_MAP_BYTES = 1 << 20
"""Of which the API server takes no more."""


def _both(one: Desired, other: Desired) -> Desired:
    return replace(one, hosts=one.hosts + other.hosts, names=one.names + other.names)


def _config(**coredns: object) -> Config:
    return msgspec.convert({"coredns": coredns}, Config)


_CONFIG = _config(maxBytes=65_536)
_VICTIM = desired(*(f"shop{index}.example.com" for index in range(100)), namespace="shop")
_LONG = f"{'a' * 60}.{'b' * 60}.{'c' * 60}"
_GREEDY = desired(
    *(f"{_LONG}.{index}.greedy{index % 7}.example.com" for index in range(500)), namespace="greedy"
)


def _left_out(edits: Edits) -> Counter[str]:
    conclusion = (DecisionStatus.SKIPPED, "BlockFull")
    return Counter(
        each.claimed_by.namespace for each in edits.decisions if (each.status, each.code) == conclusion
    )


def _after(edits: Edits) -> str:
    (edit,) = edits.edits
    assert edit.after is not None
    return edit.after


@pytest.mark.parametrize("corefile", ["kubeadm", "rke2"])
def test_who_asks_for_too_much_loses_of_its_own(corefile: str) -> None:
    user = corpus.corefile(corefile)
    edits = decide(_both(_VICTIM, _GREEDY), {MAIN: {"Corefile": user}}, _CONFIG, adopt=False)
    after = _after(edits)
    assert len(after.encode()) - len(user.encode()) <= _CONFIG.coredns.max_bytes
    assert len(after.encode()) - len(user.encode()) > 0.95 * _CONFIG.coredns.max_bytes
    left_out = _left_out(edits)
    assert left_out.keys() == {"greedy"}
    answered = block_names([after]).keys()
    assert {line.name for line in _VICTIM.hosts} <= answered
    assert len(answered) == len(_VICTIM.hosts) + len(_GREEDY.hosts) - left_out["greedy"]
    again = decide(_both(_VICTIM, _GREEDY), {MAIN: {"Corefile": after}}, _CONFIG, adopt=False)
    assert again.pending == ()


def test_a_withdrawal_fits_whatever_else_is_wanted() -> None:
    user = corpus.corefile("kubeadm")
    full = _after(decide(_both(_VICTIM, _GREEDY), {MAIN: {"Corefile": user}}, _CONFIG, adopt=False))
    gone = decide(_GREEDY, {MAIN: {"Corefile": full}}, _CONFIG, adopt=False)
    assert not any(name.startswith("shop") for name in block_names([_after(gone)]))
    assert len(_after(gone).encode()) < CONFIG_MAP_BYTES
    nothing = decide(Desired(), {MAIN: {"Corefile": full}}, _CONFIG, adopt=False)
    assert _after(nothing) == user


def test_what_is_answered_stays_when_its_namespace_asks_for_more() -> None:
    config = _config(maxBytes=2_000)
    user = corpus.corefile("kubeadm")
    first = desired(*(f"z{index}.example.com" for index in range(20)))
    before = _after(decide(first, {MAIN: {"Corefile": user}}, config, adopt=False))
    more = _both(first, desired(*(f"a{index}.example.com" for index in range(1000))))
    edits = decide(more, {MAIN: {"Corefile": before}}, config, adopt=False)
    assert {line.name for line in first.hosts} <= block_names([_after(edits)]).keys()


def test_other_keys_of_the_config_map_count() -> None:
    taken = {"other.server": "# " + "x" * (CONFIG_MAP_BYTES - 20_000)}
    standing = {MAIN: {"Corefile": corpus.corefile("k3s")}, "kube-system/coredns-custom": taken}
    edits = decide(_both(_VICTIM, _GREEDY), standing, Config(), adopt=False)
    (edit,) = edits.pending
    assert edit.key == "nodeagent.override"
    assert edit.after is not None
    assert len(edit.after.encode()) + sum(len(text) for text in taken.values()) <= CONFIG_MAP_BYTES
    assert {line.name for line in _VICTIM.hosts} <= block_names([edit.after]).keys()


def test_a_wildcard_does_not_answer_a_name_that_had_no_room() -> None:
    config = _config(maxBytes=10_000)
    wildcard = desired("*.example.com", namespace="corp")
    names = [f"zz{index}.example.com" for index in range(20)]
    filling = [f"n{index}.other.example.net" for index in range(900)]
    others = desired(*filling, *names, namespace="greedy", address="169.254.66.18")
    edits = decide(
        _both(wildcard, others), {MAIN: {"Corefile": corpus.corefile("kubeadm")}}, config, adopt=False
    )
    after = _after(edits)
    answered = block_names([after]).keys()
    assert answered.isdisjoint(["*.example.com", *names])
    assert [each.code for each in edits.decisions if each.name == "*.example.com"] == ["WildcardTooWide"]
    for name in names:
        assert model_answer(after, name) == PASSED_ON, name


def test_no_room_at_all_is_no_block() -> None:
    user = corpus.corefile("kubeadm")
    edits = decide(_VICTIM, {MAIN: {"Corefile": user}}, _config(maxBytes=0), adopt=False)
    assert _after(edits) == user
    assert _left_out(edits) == {"shop": 100}
