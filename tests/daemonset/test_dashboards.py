"""Dashboard and alerts use only metrics that exist, with the labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from tests.agent.telemetry.happening import everything
from tests.agent.telemetry.scraping import read
from tests.daemonset.kustomize import DAEMONSET, Object
from tests.daemonset.promql import labels_of, selectors

_MONITORING = DAEMONSET / "monitoring"
_TARGET_LABELS = {"job", "node"}
"""Prometheus' own, and the one that podmonitor.yaml adds."""
_OURS = "nodeagent_"


def _series() -> dict[str, set[str]]:
    """The series of a scrape after everything has happened once, each with its labels."""
    found: dict[str, set[str]] = {"up": set()}
    for family in read(everything().exposition()).families.values():
        for sample, labels in family.samples:
            found.setdefault(sample, set()).update(label for label, _ in labels)
    return found


def _rules() -> list[Object]:
    written = yaml.safe_load((_MONITORING / "rules.yaml").read_text("utf-8"))
    return [rule for group in written["spec"]["groups"] for rule in group["rules"]]


def _dashboard() -> Object:
    found: Object = json.loads((_MONITORING / "dashboard.json").read_text("utf-8"))
    return found


def _queries() -> Iterator[tuple[str, str]]:
    """Every query by where it stands."""
    for rule in _rules():
        yield rule["alert"], rule["expr"]
    for panel in _dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$node", ".*")


QUERIES = list(_queries())


def unknown(query: str) -> list[str]:
    """What a query names that no scrape has: series and labels."""
    series = _series()
    expression = promql_parser.parse(query)
    found = list(selectors(expression))
    wrong = [one.name for one in found if one.name not in series]
    there = _TARGET_LABELS.union(*(series.get(one.name, set()) for one in found))
    wrong += [
        f"{one.name}{{{label}}}"
        for one in found
        for label in one.labels - series.get(one.name, set()) - _TARGET_LABELS
    ]
    return wrong + sorted(labels_of(expression) - there)


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_a_query_names_only_what_a_scrape_has(where: str, query: str) -> None:
    assert unknown(query) == [], where


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("nodeagent_relay_alive == 0", ["nodeagent_relay_alive"]),
        ('nodeagent_names{verdict="refused"}', ["nodeagent_names{verdict}"]),
        ("sum by (part) (rate(nodeagent_applies_total[5m]))", ["part"]),
        ("sum(rate(nodeagent_apply_duration_seconds[5m]))", ["nodeagent_apply_duration_seconds"]),
    ],
)
def test_a_query_for_what_is_not_there_is_noticed(query: str, found: list[str]) -> None:
    assert unknown(query) == found


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do_and_names_labels_that_its_series_has(rule: Object) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    annotations = rule["annotations"]
    assert annotations["summary"].endswith(".")
    assert annotations["description"]
    used = set(re.findall(r"\$labels\.(\w+)", annotations["summary"] + annotations["description"]))
    expression = promql_parser.parse(rule["expr"])
    kept = labels_of(expression)
    if not kept:
        kept = _TARGET_LABELS.union(*(_series()[one.name] for one in selectors(expression)))
    assert used <= kept


def test_the_alerts_that_an_administrator_needs_are_there() -> None:
    assert {rule["alert"].removeprefix("Nodeagent") for rule in _rules()} >= {
        "Down",
        "DriftFight",
        "NamesRefused",
        "RelayBackendDown",
        "ApiAway",
    }


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    """A metric that nobody would look at is one too many, or a panel too few."""
    shown = {one.name for _, query in QUERIES for one in selectors(promql_parser.parse(query))}
    families = read(everything().exposition()).families
    assert [
        name
        for name in families
        if name.startswith(_OURS) and not shown & {name, f"{name}_bucket", f"{name}_count"}
    ] == []


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    """Panels have their own numbers and places, and no source that stands in somebody's Grafana only."""
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"


def test_the_monitor_finds_the_daemonsets_pods() -> None:
    monitor = yaml.safe_load(Path(_MONITORING, "podmonitor.yaml").read_text("utf-8"))
    deployed = yaml.safe_load_all((DAEMONSET / "deploy.yaml").read_text("utf-8"))
    (daemonset,) = [one for one in deployed if one["kind"] == "DaemonSet"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= daemonset["spec"]["template"]["metadata"]["labels"].items()
    assert monitor["metadata"]["namespace"] == daemonset["metadata"]["namespace"]
    # `job` is made of these two by the operator.
    job = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    assert any(f'up{{job="{job}"}}' in query for _, query in QUERIES)
