"""docs/runbook.md explains every alert."""

import re

import yaml

from tests.daemonset.kustomize import DAEMONSET

_ROOT = DAEMONSET.parent
_RUNBOOK = (_ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")


def test_every_alert_leads_to_its_section() -> None:
    written = yaml.safe_load((DAEMONSET / "monitoring" / "rules.yaml").read_text("utf-8"))
    rules = [rule for group in written["spec"]["groups"] for rule in group["rules"]]
    assert sorted(re.findall(r"^### (\S+)$", _RUNBOOK.partition("## Metrics")[0], re.MULTILINE)) == sorted(
        rule["alert"] for rule in rules
    )
    for rule in rules:
        # A heading's anchor is its text in lower case (GitHub, and the Markdown of most sites).
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
