"""Dashboard and alerts use only metrics that exist, with their labels; the runbook explains each alert."""

import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache

import promql_parser
import pytest
import yaml
from promql_parser import AggregateExpr, Expr, VectorSelector

from nodeagent.coredns.controller import coredns_metrics
from nodeagent.observe.status import Status
from tests.agent.happening import everything
from tests.agent.scraping import read
from tests.daemonset.kustomize import DAEMONSET, Object
from tests.daemonset.manifests import deployed, the

_MONITORING = DAEMONSET / "monitoring"
_TARGET_LABELS = {"job", "instance", "node"}
"""Prometheus' own, and the one that podmonitor.yaml adds."""
_KUBE_STATE_METRICS = {
    "kube_daemonset_status_desired_number_scheduled": {"namespace", "daemonset"},
    "kube_daemonset_status_number_unavailable": {"namespace", "daemonset"},
    "kube_deployment_status_replicas_unavailable": {"namespace", "deployment"},
}
"""Of kubernetes/kube-state-metrics, docs/metrics/workload (all are stable there)."""


@cache
def _series() -> Mapping[str, AbstractSet[str]]:
    """The series of a scrape after everything has happened once, each with its labels."""
    found: dict[str, set[str]] = {"up": set(), **_KUBE_STATE_METRICS}
    for scrape in (everything().exposition(), coredns_metrics(Status([])).exposition()):
        for family in read(scrape).families.values():
            for sample, labels in family.samples:
                found.setdefault(sample, set()).update(label for label, _ in labels)
    return found


def _rules() -> list[Object]:
    written = yaml.safe_load((_MONITORING / "rules.yaml").read_text("utf-8"))
    return [rule for group in written["spec"]["groups"] for rule in group["rules"]]


def _page(name: str) -> str:
    return (DAEMONSET.parent / "docs" / name).read_text("utf-8")


def _queries() -> Iterator[tuple[str, str]]:
    for rule in _rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads((_MONITORING / "dashboard.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$node", ".*")
    for block in re.findall(r"```yaml\n(groups:.*?)```", _page("gitops.md"), re.DOTALL):
        for group in yaml.safe_load(block)["groups"]:
            yield from ((rule["record"], rule["expr"]) for rule in group["rules"])


QUERIES = list(_queries())


def parts(expression: Expr) -> Iterator[Expr]:
    yield expression
    inner = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    for part in (*inner, *getattr(expression, "args", ())):
        if part is not None:
            yield from parts(part)


def selectors(expression: Expr) -> list[tuple[str, set[str]]]:
    return [
        (str(one.name), {str(matcher.name) for matcher in one.matchers.matchers})
        for one in parts(expression)
        if isinstance(one, VectorSelector)
    ]


def labels_of(expression: Expr) -> set[str]:
    modifiers = [getattr(one, "modifier", None) for one in parts(expression)]
    by = [getattr(one, "matching", one) for one in modifiers]
    return {label for one in by if one is not None for label in one.labels}


def unknown(query: str) -> list[str]:
    """What a query names that no scrape has: series and labels."""
    series = _series()
    expression = promql_parser.parse(query)
    found = selectors(expression)
    wrong = [name for name, _ in found if name not in series]
    there = _TARGET_LABELS.union(*(series.get(name, set()) for name, _ in found))
    for name, labels in found:
        wrong += [f"{name}{{{label}}}" for label in labels - series.get(name, set()) - _TARGET_LABELS]
    return wrong + sorted(labels_of(expression) - there)


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_a_query_names_only_what_a_scrape_has(where: str, query: str) -> None:
    assert unknown(query) == [], where


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do_and_names_labels_that_its_series_has(rule: Object) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    annotations = rule["annotations"]
    assert annotations["summary"].endswith(".")
    assert annotations["description"]
    used = set(re.findall(r"\$labels\.(\w+)", annotations["summary"] + annotations["description"]))
    expression = promql_parser.parse(rule["expr"])
    grouped = [labels_of(one) for one in parts(expression) if isinstance(one, AggregateExpr)]
    there = _TARGET_LABELS.union(*(_series()[name] for name, _ in selectors(expression)))
    assert used <= (set().union(*grouped) if grouped else there)


def test_every_alert_leads_to_its_section_of_the_runbook() -> None:
    alerts = _page("runbook.md").partition("## Metrics")[0]
    assert sorted(re.findall(r"^### (\S+)$", alerts, re.MULTILINE)) == sorted(
        rule["alert"] for rule in _rules()
    )
    for rule in _rules():
        # A heading's anchor is its text in lower case (GitHub, and the Markdown of most sites).
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_what_concerns_a_node_names_it_and_is_routed_by_it() -> None:
    """By the labels `namespace` and `node` alerts are routed and silenced; an aggregation would drop them."""
    for rule in _rules():
        if rule["alert"] in {"NodeagentDown", "NodeagentLoadBalancerRefused", "NodeagentRelayDown"}:
            assert "$labels.node" in rule["annotations"]["summary"]
            found = parts(promql_parser.parse(rule["expr"]))
            assert not any(isinstance(one, AggregateExpr) for one in found)


def test_every_metric_is_on_the_dashboard() -> None:
    """A metric without a panel is one too many, or a panel is missing."""
    shown = {name for _, query in QUERIES for name, _ in selectors(promql_parser.parse(query))}
    families = read(everything().exposition()).families
    assert [
        name
        for name in families
        if name.startswith("nodeagent_") and not shown & {name, f"{name}_bucket", f"{name}_count"}
    ] == []


def test_monitors_and_alerts_name_what_is_deployed() -> None:
    monitors = list(yaml.safe_load_all((_MONITORING / "podmonitor.yaml").read_text("utf-8")))
    objects = deployed("../coredns")
    for monitor, kind in zip(monitors, ("DaemonSet", "Deployment"), strict=True):
        workload = the(objects, kind, monitor["metadata"]["name"])
        template = workload["spec"]["template"]
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()
        assert monitor["metadata"]["namespace"] == workload["metadata"]["namespace"]
        pattern = rf'namespace="([^"]+)",{kind.lower()}="([^"]+)"'
        named = re.findall(pattern, " ".join(query for _, query in QUERIES))
        assert named
        for namespace, name in named:
            assert the(objects, kind, name)["metadata"]["namespace"] == namespace
    # `job` is made of these two by the operator.
    job = f"{monitors[0]['metadata']['namespace']}/{monitors[0]['metadata']['name']}"
    assert any(f'up{{job="{job}"}}' in query for _, query in QUERIES)
