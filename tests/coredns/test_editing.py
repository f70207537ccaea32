"""Which ConfigMap is changed, and what a pod is answered afterwards."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from nodeagent.cli.report import edit_lines
from nodeagent.config.option_types import DnsName
from nodeagent.config.options import Config, CoreDnsOptions, HostsOptions
from nodeagent.coredns.editing import Edit, decide, decide_removal
from nodeagent.coredns.managed_block import block_names
from nodeagent.coredns.parsing import CorefileError, own_names, parse
from nodeagent.model.decisions import DecisionStatus, NameDecision, skipped
from nodeagent.model.objects import Age, ObjectRef
from tests.cases import cases_of
from tests.coredns import corpus
from tests.coredns.corpus import INGRESS, RELAY, SERVICE, desired
from tests.coredns.resolving import NO_RECORDS, PASSED_ON, model_answer

CONFIG = Config()
MAIN, CUSTOM, LOCAL = "kube-system/coredns", "kube-system/coredns-custom", "kube-system/node-local-dns"
PLAN = desired("app.example.com", "*.apps.example.com")


def standing(
    name: str, imported: Mapping[str, str] | None = None, node_local: str | None = None
) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {MAIN: {"Corefile": corpus.corefile(name)}}
    if imported is not None:
        found[CUSTOM] = imported
    return found | ({LOCAL: {"Corefile": corpus.corefile(node_local)}} if node_local else {})


def with_mode(mode: str) -> Config:
    return msgspec.structs.replace(CONFIG, coredns=msgspec.convert({"mode": mode}, CoreDnsOptions))


def texts(edits: tuple[Edit, ...]) -> dict[tuple[str, str], str | None]:
    return {(edit.config_map, edit.key): edit.after for edit in edits}


def imported_answer(text: str | None, name: str, kind: str = "A") -> str:
    return model_answer(f". {{\n{text}}}\n", name, kind)


@pytest.mark.parametrize("name", [name for name in corpus.NAMES if name != "hairpin-proxy"])
def test_a_pod_is_answered_by_every_corefile_and_removal_restores_it(name: str) -> None:
    edits = decide(PLAN, standing(name), CONFIG, adopt=False)
    (edit,) = edits.pending
    assert (edit.config_map, edit.key, edits.way) == (MAIN, "Corefile", "corefile")
    assert edit.after is not None
    assert block_names([edit.after]).keys() == {"app.example.com", "*.apps.example.com"}
    (removal,) = decide_removal({MAIN: {"Corefile": edit.after}})
    assert removal.after == corpus.corefile(name)
    assert decide(PLAN, {MAIN: {"Corefile": edit.after}}, CONFIG, adopt=False).pending == ()


@pytest.mark.parametrize("name", ["k3s", "aks"])
def test_where_the_corefile_imports_a_key_of_the_other_config_map_holds_the_names(name: str) -> None:
    edits = decide(PLAN, standing(name, {"log.override": "log\n"}), CONFIG, adopt=False)
    (edit,) = edits.pending
    assert (edits.way, edit.config_map, edit.key, edit.before) == (
        "import",
        CUSTOM,
        "nodeagent.override",
        None,
    )
    assert imported_answer(edit.after, "app.example.com") == RELAY
    assert imported_answer(edit.after, "app.example.com", "AAAA") == NO_RECORDS
    assert imported_answer(edit.after, "x.app.example.com") == PASSED_ON
    again = {"log.override": "log\n", "nodeagent.override": edit.after or ""}
    assert decide(PLAN, standing(name, again), CONFIG, adopt=False).pending == ()
    for removal in (
        decide_removal({CUSTOM: again}),
        decide(desired(), standing(name, again), CONFIG, adopt=False).pending,
    ):
        assert texts(removal) == {(CUSTOM, "nodeagent.override"): None}


def test_without_the_import_config_map_the_corefile_is_edited_and_it_is_said() -> None:
    edits = decide(PLAN, standing("k3s"), CONFIG, adopt=False)
    assert edits.way == "corefile"
    assert "kubectl -n kube-system create configmap coredns-custom" in " ".join(edits.remarks)


def test_from_the_corefile_to_the_import_the_block_moves() -> None:
    (first,) = decide(PLAN, standing("k3s"), CONFIG, adopt=False).pending
    moved = decide(PLAN, {MAIN: {"Corefile": first.after or ""}, CUSTOM: {}}, CONFIG, adopt=False)
    assert texts(moved.pending)[MAIN, "Corefile"] == corpus.corefile("k3s")
    assert (CUSTOM, "nodeagent.override") in texts(moved.pending)
    data = {"nodeagent.override": texts(moved.pending)[CUSTOM, "nodeagent.override"] or ""}
    back = decide(PLAN, standing("k3s", data), with_mode("corefile"), adopt=False)
    assert texts(back.pending)[CUSTOM, "nodeagent.override"] is None
    assert texts(back.pending)[MAIN, "Corefile"] == first.after


@pytest.mark.parametrize(("name", "imported", "why"), cases_of(__file__, "cases.yaml")["lacks"])
def test_mode_import_says_what_it_lacks(name: str, imported: Mapping[str, str] | None, why: str) -> None:
    with pytest.raises(CorefileError, match=why):
        decide(PLAN, standing(name, imported), with_mode("import"), adopt=False)


def test_a_corefile_without_reload_is_reported() -> None:
    text = corpus.corefile("kubeadm").replace("    reload\n", "")
    edits = decide(PLAN, {MAIN: {"Corefile": text}}, CONFIG, adopt=False)
    assert "the Corefile has no `reload`" in " ".join(edits.remarks)
    assert decide(PLAN, standing("gke-like"), CONFIG, adopt=False).remarks == ()


def test_a_node_local_cache_that_cant_be_edited_keeps_nothing_else_back() -> None:
    broken = standing("kubeadm") | {LOCAL: {"Corefile": ".:53 {\n"}}
    edits = decide(PLAN, broken, CONFIG, adopt=False)
    assert [edit.config_map for edit in edits.pending] == [MAIN]
    assert any(remark.startswith("kube-system/node-local-dns: line 1: ") for remark in edits.remarks)


def test_a_name_that_the_corefile_sets_is_left_to_its_line() -> None:
    """As are its neighbours, if they come from a wildcard: it would answer that name, too."""
    plan = desired("registry.corp.example.org", "*.corp.example.org", "other.corp.example.org")
    edits = decide(plan, standing("kubespray"), CONFIG, adopt=False)
    left, wild, other = edits.decisions
    assert (left.status, left.code) == (DecisionStatus.SKIPPED, "UserLine")
    assert "line 34" in left.reason
    assert (wild.status, wild.code) == (DecisionStatus.SKIPPED, "WildcardTooWide")
    assert all(word in wild.reason for word in ("registry.corp.example.org", "line 34"))
    assert other.status is DecisionStatus.SERVED
    (edit,) = edits.pending
    assert block_names([edit.after or ""]).keys() == {"other.corp.example.org"}


def test_a_wildcard_answers_neither_the_api_server_s_name_nor_the_cluster_s_domain() -> None:
    plan = desired("*.example.com", "*.local", "*.example.net")
    edits = decide(plan, standing("kubeadm"), CONFIG, adopt=False, never=["api.example.com"])
    after = edits.pending[0].after or ""
    assert model_answer(after, "api.example.com") == PASSED_ON
    assert model_answer(after, "cluster.local") == PASSED_ON
    assert model_answer(after, "any.example.net") == RELAY
    reasons = {each.name: each.reason for each in edits.decisions if each.code == "WildcardTooWide"}
    assert "api.example.com" in reasons["*.example.com"]
    assert "cluster.local" in reasons["*.local"]


@pytest.mark.parametrize(
    ("namespace", "code", "second", "answer"), cases_of(__file__, "cases.yaml")["wildcards"]
)
def test_a_claim_that_is_not_served_takes_a_wildcard_from_its_own_namespace_and_from_younger_ones(
    namespace: str, code: str, second: int | None, answer: str
) -> None:
    """Not with `nodeagent.io/exclude`, which binds its own namespace only."""
    wildcard = desired("*.example.com")
    other = claim("db", namespace, code)
    plan = replace(wildcard, names=(*wildcard.names, other))
    ages = {INGRESS: age(5), **({other.claimed_by: age(second)} if second else {})}
    edits = decide(plan, standing("kubeadm"), CONFIG, adopt=False, ages=ages)
    text = texts(edits.edits)[MAIN, "Corefile"] or ""
    assert model_answer(text, "db.example.com") == answer
    if answer == PASSED_ON:
        (conclusion, _) = edits.decisions
        assert (conclusion.status, conclusion.code) == (DecisionStatus.SKIPPED, "WildcardTooWide")
        assert all(word in conclusion.reason for word in (f"Ingress {namespace}/db", f"({code})"))


def test_a_claim_with_an_answer_of_its_own_leaves_the_wildcard_beside_it() -> None:
    """At another address, too: exact names come first."""
    wildcard = desired("*.example.com")
    other = desired("db.example.com", namespace="team", address="169.254.66.99")
    plan = replace(wildcard, names=wildcard.names + other.names, hosts=wildcard.hosts + other.hosts)
    after = decide(plan, standing("kubeadm"), CONFIG, adopt=False).pending[0].after or ""
    assert model_answer(after, "db.example.com") == "169.254.66.99"
    assert model_answer(after, "any.example.com") == RELAY


def test_what_is_no_label_changes_nothing() -> None:
    """Kinds without a schema hold any text as a hostname, and an Ingress holds labels of 253 letters."""
    wildcard = desired("*.example.com", "app.example.com")
    odd = (r"\x", "w(y", "x)]", "a b", "a\nforward", "{", "a" * 64, "é", "[^")
    claims = tuple(claim(label, "tenant", code) for label in odd for code in ("BadName", "NotVerified"))
    edits = decide(
        replace(wildcard, names=(*wildcard.names, *claims)), standing("kubeadm"), CONFIG, adopt=False
    )
    assert edits.edits == decide(wildcard, standing("kubeadm"), CONFIG, adopt=False).edits


def claim(label: str, namespace: str, code: str) -> NameDecision:
    """A hostname that an Ingress of a namespace claims, and that is not served."""
    by = ObjectRef("Ingress", namespace, label)
    return NameDecision(f"{label}.example.com", by, SERVICE, skipped(code, ""))


def age(second: float) -> Age:
    return (False, float(second), "", "", "")


@pytest.mark.parametrize("excluded", ["refused", "hosts.exclude"])
def test_a_wildcard_does_not_match_a_name_that_is_rejected_or_excluded(excluded: str) -> None:
    plan = desired("*.example.com", refused=("db.example.com",) if excluded == "refused" else ())
    hosts = HostsOptions(exclude=(DnsName("db.example.com"),) if excluded == "hosts.exclude" else ())
    edits = decide(plan, standing("kubeadm"), msgspec.structs.replace(CONFIG, hosts=hosts), adopt=False)
    assert edits.pending == ()
    assert edits.decisions[0].code == "WildcardTooWide"
    assert "db.example.com, which" in edits.decisions[0].reason


def test_with_an_import_hairpin_proxys_lines_still_leave_the_corefile() -> None:
    line = "    rewrite name app.example.com hairpin-proxy.x.svc.cluster.local # Added by hairpin-proxy\n"
    text = corpus.corefile("k3s").replace("    errors\n", f"{line}    errors\n")
    edits = decide(PLAN, {MAIN: {"Corefile": text}, CUSTOM: {}}, CONFIG, adopt=True)
    assert texts(edits.pending)[MAIN, "Corefile"] == corpus.corefile("k3s")
    assert imported_answer(texts(edits.pending)[CUSTOM, "nodeagent.override"], "app.example.com") == RELAY


@pytest.mark.parametrize(("text", "by_hand"), cases_of(__file__, "cases.yaml")["by_hand"])
def test_an_edit_within_the_block_is_replaced_whatever_it_is(text: str, by_hand: str) -> None:
    plan = desired("app.example.com")
    (edit,) = decide(plan, standing("kubeadm"), CONFIG, adopt=False).pending
    edited = (edit.after or "").replace(text, by_hand)
    assert edited != edit.after
    assert block_names([edited]).keys() <= {"app.example.com"}
    (again,) = decide(plan, {MAIN: {"Corefile": edited}}, CONFIG, adopt=False).pending
    assert again.after == edit.after


def test_a_diff_shows_what_changes_in_linear_time() -> None:
    """Of 8,000 lines; a library's diff takes seconds for so many that are alike."""
    before = "".join(f"template IN A {number} {{\n    fallthrough\n}}\n" for number in range(3000))
    lines = before.replace(" 17 ", " 18 ").replace(" 2000 ", " 2001 ")
    assert edit_lines(Edit(MAIN, "Corefile", before, lines)) == [
        f"--- {MAIN}/Corefile",
        f"+++ {MAIN}/Corefile",
        "-template IN A 17 {",
        "-template IN A 2000 {",
        "+template IN A 18 {",
        "+template IN A 2001 {",
    ]


def test_a_config_map_without_a_corefile_is_an_error_that_names_its_keys() -> None:
    with pytest.raises(CorefileError, match=r"kube-system/coredns: it has no key Corefile, but corefile, x"):
        decide(PLAN, {MAIN: {"x": "", "corefile": ""}}, CONFIG, adopt=False)


@pytest.mark.parametrize(("rule", "taken"), cases_of(__file__, "cases.yaml")["rewrites"])
def test_a_rewrite_by_pattern_that_takes_a_name_first_is_named_with_its_line(rule: str, taken: bool) -> None:
    corefile = f".:53 {{\n    {rule}\n    forward . /etc/resolv.conf\n    reload\n}}\n"
    decided = decide(PLAN, {"kube-system/coredns": {"Corefile": corefile}}, CONFIG, adopt=False)
    notes = [remark for remark in decided.remarks if remark.startswith("app.example.com: line ")]
    assert bool(notes) == taken


def test_the_lines_of_other_successors_are_named_with_their_program() -> None:
    corefile = (
        ".:53 {\n    rewrite name app.example.com x.y # managed-by: hairpin-proxy-gen2 | do-not-modify\n"
        "    # === BEGIN ouroboros (do not edit by hand) ===\n    rewrite name www.example.com x.y\n"
        "    # of a person\n    rewrite name web.example.com x.y\n    # === END ouroboros ===\n"
        "    # === END ouroboros ===\n    rewrite name own.example.com x.y\n}\n"
    )
    found = own_names(parse(corefile), "the Corefile", {})
    assert {name: line.writer for name, line in found.items()} == {
        "app.example.com": "hairpin-proxy-gen2",
        "www.example.com": "ouroboros",
        "web.example.com": "ouroboros",
        "own.example.com": "",
    }
