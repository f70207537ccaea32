"""docs/runbook.md explains alerts, Event reasons and the doctor's codes; reasons.md those of decisions."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from nodeagent.agent.reporting.event_recorder import EVENT_NAME_CODES
from nodeagent.coredns.controller import COREDNS_NAME_CODES
from nodeagent.doctor.findings import CheckVerdict
from tests.daemonset.kustomize import DAEMONSET
from tests.doctor.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = DAEMONSET.parent
_RUNBOOK = (_ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
_REASONS = (_ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
_DOCTOR = (_ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
_OF_NAMES = frozenset({"hostname_contest.py", "hostname_obstacles.py", "dns_verification.py"})
"""Modules of the plan that decide on hostnames; the others decide on load balancers."""


_OTHER_WORDS = frozenset({"Proxy", "True", "False", "Cilium", "Calico", "MetalLB", "Docker", "Antrea"})
"""Strings of the plan's modules that are not codes."""

_TO_ACT_ON = frozenset({CheckVerdict.AFFECTED, CheckVerdict.WARNING, CheckVerdict.CANNOT_TELL})


def _chapter(title: str) -> str:
    both = f"{_RUNBOOK}\n{_REASONS}"
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", both, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def _sections(title: str) -> list[str]:
    return re.findall(r"^### (\S+)$", _chapter(title), re.MULTILINE)


def _refused(path: Path) -> Iterator[str]:
    """The codes that a module of the plan rejects something with: the words next to `Verdict.REFUSED`.

    Or those that its function `_refusal` is called with, which adds the verdict.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call | ast.Tuple):
            values = (
                node.elts if isinstance(node, ast.Tuple) else [*node.args, *(k.value for k in node.keywords)]
            )
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called == "_refusal" or any(ast.unparse(value) == "Verdict.REFUSED" for value in values):
                for value in values:
                    if isinstance(value, ast.Constant) and re.fullmatch(r"[A-Z]\w+", str(value.value)):
                        yield str(value.value)


def _event_reasons() -> set[str]:
    plan = _ROOT / "nodeagent" / "plan"
    found = {
        path.name: set(_refused(path)) for path in sorted(plan.rglob("*.py")) if path.name not in _OF_NAMES
    }
    assert {"eligibility.py", "relaying.py", "decision.py"} <= {
        name for name, codes in found.items() if codes
    }
    of_names = {f"Name{code}" for code in EVENT_NAME_CODES | COREDNS_NAME_CODES}
    return set().union(*found.values()) | of_names | {"PortTaken"}


def _named(path: Path) -> set[str]:
    """Return the string constants of a module that have a code's form."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[A-Z]{1,2}[a-z]\w+|NoTCPPort|IPModeProxy", node.value)
    }


def _rows(title: str) -> set[str]:
    cells = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \|", _chapter(title), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(cells)))


def test_every_code_of_a_decision_is_explained() -> None:
    plan = _ROOT / "nodeagent" / "plan"
    of_names = {plan / name for name in _OF_NAMES} | {_ROOT / "nodeagent" / "coredns" / "naming.py"}
    of_load_balancers = {plan / "detection" / "decision.py", *plan.glob("*.py")} - of_names
    names, load_balancers = (set().union(*map(_named, each)) for each in (of_names, of_load_balancers))
    told_of_names = _rows("A hostname is not written")
    told = told_of_names | _rows("A load balancer is not served") | set(_sections("Events"))
    assert names <= told_of_names
    assert load_balancers - _OTHER_WORDS <= told
    assert told_of_names | _rows("A load balancer is not served") <= names | load_balancers


def test_every_alert_leads_to_its_section() -> None:
    written = yaml.safe_load((DAEMONSET / "monitoring" / "rules.yaml").read_text("utf-8"))
    rules = [rule for group in written["spec"]["groups"] for rule in group["rules"]]
    assert sorted(_sections("Alerts")) == sorted(rule["alert"] for rule in rules)
    for rule in rules:
        # A heading's anchor is its text in lower case (GitHub, and the Markdown of most sites).
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_every_event_reason_has_its_section() -> None:
    assert sorted(_sections("Events")) == sorted(_event_reasons())


def test_every_section_says_something() -> None:
    for section in _RUNBOOK.split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        assert len(body.split()) > 10, title


def test_every_code_of_the_doctor_that_asks_for_action_leads_to_its_explanation() -> None:
    rows = re.findall(
        r"^\| \[(\S+)\]\(doctor\.md#(\S+)\) \| (.+) \|$", _chapter("Codes of the doctor"), re.MULTILINE
    )
    told = {check: set(re.findall(r"`(\w+)`", codes)) for check, anchor, codes in rows if anchor == check}
    assert told == {
        check: {code.value for verdict in _TO_ACT_ON for code in found.get(verdict, ())}
        for check, found in CATALOGUE.items()
        if _TO_ACT_ON.intersection(found)
    }
    for check in told:
        assert f"\n### {check}\n" in _DOCTOR


def test_no_two_sections_have_the_same_anchor() -> None:
    anchors = [title.lower() for title in re.findall(r"^#+ (.+)$", _RUNBOOK, re.MULTILINE)]
    assert len(anchors) == len(set(anchors))
