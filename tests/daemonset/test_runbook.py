"""docs/runbook.md explains alerts, reasons.md the codes of decisions and Events."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from nodeagent.coredns.controller import COREDNS_NAME_CODES
from nodeagent.runtime.event_recorder import EVENT_NAME_CODES
from tests.daemonset.kustomize import DAEMONSET

_ROOT = DAEMONSET.parent
_RUNBOOK = (_ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
_REASONS = (_ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
_OF_NAMES = frozenset({"hostname_contest.py", "hostname_decisions.py", "dns_verification.py"})
"""Modules of the plan that decide on hostnames; the others decide on load balancers."""


_OTHER_WORDS = frozenset({"Proxy", "True", "False", "Cilium", "Calico", "MetalLB", "Docker", "Antrea"})
"""Strings of the plan's modules that are not codes."""


def _chapter(title: str) -> str:
    both = f"{_RUNBOOK}\n{_REASONS}"
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", both, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def _sections(title: str) -> list[str]:
    return re.findall(r"^### (\S+)$", _chapter(title), re.MULTILINE)


def _refused(path: Path) -> Iterator[str]:
    """The codes that a module of the plan rejects something with: what `refused` is called with first."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("_") == "refused":
            yield from (str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))


def _event_reasons() -> set[str]:
    plan = _ROOT / "nodeagent" / "plan"
    found = {
        path.name: set(_refused(path)) for path in sorted(plan.rglob("*.py")) if path.name not in _OF_NAMES
    }
    assert {"eligibility.py", "relaying.py", "decision.py"} <= {
        name for name, codes in found.items() if codes
    }
    return set().union(*found.values()) | {"PortTaken", "CorefilePutBack"}


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
    # Claims decide nothing: the words of route_claims.py are the Gateway API's.
    others = of_names | {plan / "route_claims.py"}
    of_load_balancers = {plan / "detection" / "decision.py", *plan.glob("*.py")} - others
    names, load_balancers = (set().union(*map(_named, each)) for each in (of_names, of_load_balancers))
    told_of_names = _rows("A hostname is not written")
    told = told_of_names | _rows("A load balancer is not served") | _rows("Events")
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


def test_every_event_reason_is_explained() -> None:
    assert _rows("Events") == _event_reasons()
    assert _rows("A hostname is not written") >= EVENT_NAME_CODES | COREDNS_NAME_CODES


def test_an_alerts_words_and_its_times_agree() -> None:
    written = yaml.safe_load((DAEMONSET / "monitoring" / "rules.yaml").read_text("utf-8"))
    rules = [rule for group in written["spec"]["groups"] for rule in group["rules"]]
    slow = [rule for rule in rules if "half an hour" in rule["annotations"]["summary"]]
    assert len(slow) == 2
    for rule in slow:
        (age,) = re.findall(r"_sync_timestamp_seconds > (\d+)", rule["expr"])
        assert int(age) + 60 * int(rule["for"].removesuffix("m")) == 1800
