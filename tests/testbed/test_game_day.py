"""The game day's alerts and sections are those that are published; `make game-day` plays it."""

import promql_parser
import pytest
import yaml

from tests.daemonset.kustomize import DAEMONSET
from tests.testbed.game_day import INCIDENTS, Incident, runbook_section, scaled_rules

_RULES = (DAEMONSET / "monitoring" / "rules.yaml").read_text("utf-8")
_RUNBOOK = (DAEMONSET.parent / "docs" / "runbook.md").read_text("utf-8")


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda one: str(one.alert))
def test_each_incident_has_an_alert_and_a_section(incident: Incident) -> None:
    assert f"alert: {incident.alert}\n" in _RULES
    section = runbook_section(_RUNBOOK, incident.alert)
    assert section.startswith("- **Meaning:**")
    assert "###" not in section


def test_a_minute_is_a_second() -> None:
    original = [rule for group in yaml.safe_load(_RULES)["spec"]["groups"] for rule in group["rules"]]
    scaled = [rule for group in scaled_rules(_RULES)["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in scaled] == [rule["alert"] for rule in original]
    for before, after in zip(original, scaled, strict=True):
        promql_parser.parse(after["expr"])
        assert after["for"] == before.get("for", "0m").replace("m", "s")
    by_name = {rule["alert"]: rule["expr"] for rule in scaled}
    assert "[60s]" in by_name["NodeagentConfigRejected"]
    assert "> 900" in by_name["NodeagentNotInSync"]
