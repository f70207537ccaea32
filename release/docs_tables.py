"""What docs/ repeats of the code: options, codes, metrics and alerts. `make docs` writes it again.

What a code means is written in its row, and stays; that it exists, its status and its Event are the code's.

python -m release.docs_tables
"""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from msgspec import Struct
from msgspec.inspect import StructType, VarTupleType, type_info
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.config.options import Config
from nodeagent.coredns.controller import COREDNS_NAME_CODES, coredns_metrics
from nodeagent.doctor.findings import EXIT_CODES, Code
from nodeagent.observe.event_recorder import EVENT_NAME_CODES
from nodeagent.observe.status import Status
from nodeagent.plan.identity.providers import PROVIDERS
from nodeagent.plan.identity.rows import Provider
from nodeagent.plan.identity.ways_out import Way
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS
from release.schemas import CHART, described
from tests.agent.happening import everything

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
_SITUATIONS = _ROOT / "tests" / "situations"
_RULES = _ROOT / "daemonset" / "monitoring" / "rules.yaml"
_WIDTH = 130
_LABEL = re.compile(r"\{\{ [^$]*\$(?:labels\.)?(\w+)[^}]*\}\}")
"""What a rule's text has in place of a label's value; of alternatives, the first."""

_PLAN = _ROOT / "nodeagent" / "plan"
_DECIDING = (
    *(path for path in _PLAN.rglob("*.py") if path.parent.name != "identity"),
    _PLAN / "identity" / "identify.py",
    _ROOT / "nodeagent/agent/convergence.py",
    _ROOT / "nodeagent/coredns/editing.py",
)
_DECIDING_NOTHING = frozenset({"claims.py"})
"""Its words are the Gateway API's."""
_OTHER_WORDS = frozenset({"Proxy", "True", "False"})
"""Texts of the modules that decide, which are not codes."""
_OTHER_EVENTS = frozenset({"PortTaken", "CorefilePutBack"})
"""Events of what happened, not of a decision."""


def pages() -> dict[Path, str]:
    """Return the pages with a part that the code determines, as they should be."""
    return {
        page: make(page.read_text("utf-8"))
        for page, make in (
            (_ROOT / "README.md", _with_shortest_fixes),
            (_DOCS / "configuration.md", lambda text: _with_providers(_with_options(text))),
            (_DOCS / "reasons.md", _with_reasons),
            (_DOCS / "names.md", _with_kinds),
            (_DOCS / "fixes.md", _with_annotations),
            (_DOCS / "doctor-codes.md", _with_doctor_codes),
            (_DOCS / "runbook.md", _with_metrics_and_alerts),
            (_SITUATIONS / "README.md", _with_situations),
            (CHART / "README.md", _with_values),
        )
    }


def without_meaning() -> list[str]:
    """Return the codes whose row on a page says nothing yet."""
    found = []
    for name, codes in (("reasons.md", reasons()), ("doctor-codes.md", {code.value for code in Code})):
        meanings = _meanings((_DOCS / name).read_text("utf-8"))
        found += [f"{name}: {code}" for code in sorted(codes) if not meanings.get(code)]
    return found


def reasons() -> set[str]:
    """Return the codes of decisions on load balancers and hostnames, and of other Events."""
    found = {text for path in _DECIDING if path.name not in _DECIDING_NOTHING for text in _codes(path)}
    return (found - _OTHER_WORDS) | _OTHER_EVENTS


def _codes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"[A-Z]{1,2}[a-z]\w+|NoTCPPort|IPModeProxy", text):
            yield text


def _refused(path: Path) -> Iterator[str]:
    """Yield the codes that a module rejects a load balancer with: what `refused` is called with first."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("_") == "refused":
            yield from (str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))


def _with_events() -> set[str]:
    """Return the codes that have an Event."""
    of_names = {"conditions.py", "hostname_decisions.py", "editing.py"}
    refused = {code for path in _DECIDING if path.name not in of_names for code in _refused(path)}
    return refused | _OTHER_EVENTS | EVENT_NAME_CODES | COREDNS_NAME_CODES


def _with_reasons(text: str) -> str:
    meanings, events = _meanings(text), _with_events()
    rows = (
        (f"`{code}`{'†' if code in events else ''}", meanings.get(code, "")) for code in sorted(reasons())
    )
    return _replaced(text, "reasons", _table(("code", "meaning, and what to do"), rows))


_FIXES = {
    "ip-mode": "Update your cloud controller; recent versions usually set `ipMode: Proxy` for you",
    "ip-mode-on-request": "One annotation asks the controller for `ipMode: Proxy`",
    "detour": "One annotation lets nodes and pods reach the load balancer: `kubernetes.io/elb.pass-through`",
    "hostname": "One annotation publishes a hostname instead of the address "
    "([how](docs/fixes.md#a-hostname-instead-of-the-address))",
    "none": "Usually nothing: they publish a hostname, and kube-proxy intercepts only addresses "
    "([exceptions](docs/fixes.md#load-balancers-that-publish-only-a-hostname))",
    "nodeagent": "nodeagent on the nodes",
}
_OTHER_FIXES = (
    (
        "any, on Kubernetes 1.36+ (1.34+, feature-gated)",
        "A policy in the API server: `nodeagent doctor --policy`",
    ),
    (
        "any, if only certificates fail",
        (
            "cert-manager 1.21+ can wait instead of checking: "
            "`spec.acme.solvers[].waitInsteadOfSelfCheck`. This doesn't help with pulls or calls"
        ),
    ),
    (
        "a load balancer of your own, at home or [on-premises](docs/fixes.md#on-premises)",
        "Often nothing; it depends on the address your DNS returns",
    ),
    (
        "any, if you don't need client addresses",
        "Switch PROXY off at the load balancer and at the ingress controller",
    ),
)


def first_way(provider: Provider) -> Way | Literal["none"]:
    """Return the best way of one row; `none` if it needs none."""
    if provider.publishes_hostname:
        return "none"
    if provider.ip_mode:
        return "ip-mode"
    if provider.ip_mode_on_request:
        return "ip-mode-on-request"
    if provider.detour:
        return "detour"
    return "hostname" if provider.hostname else "nodeagent"


def _with_shortest_fixes(text: str) -> str:
    """Return README with what the doctor advises first for each row."""
    rows = []
    for way, fix in _FIXES.items():
        named = [one.name for one in PROVIDERS if not one.sends_none and first_way(one) == way]
        several = Counter(name.partition(" (")[0] for name in named)
        shown = dict.fromkeys(
            base if several[base := name.partition(" (")[0]] > 1 else name for name in named
        )
        rows.append((", ".join(shown), fix))
    plain = ", ".join(one.name for one in PROVIDERS if one.sends_none and one.schemes)
    rows.append((plain, "Usually nothing: their load balancers pass packets through, without a PROXY header"))
    return _replaced(text, "fixes", _table(("your provider", "the simplest fix"), (*rows, *_OTHER_FIXES)))


def _with_providers(text: str) -> str:
    """Return the page with each row's switches."""
    rows = []
    for one in PROVIDERS:
        if one.switches:
            keys = dict.fromkeys(f"`{key.format(port=443)}`" for key in one.switches)
            known = [f"`loadBalancerClass` {start}..." for start in one.classes[:1]]
            known += ["any cloud"] if not one.schemes else []
            name = f"{one.name}, {', '.join(known)}" if known else one.name
            reader = next(iter(one.switches.values()))
            spelling = f"{one.sends or reader.sends}: {one.switched_on or reader.on}"
            rows.append((name, ", ".join(keys), spelling))
    head = ("provider", "annotation", "version: switched on by")
    return _replaced(text, "providers", _table(head, rows))


def _with_annotations(text: str) -> str:
    found = {
        one.name.partition(" (")[0]: one.ip_mode_on_request or one.detour or one.hostname
        for one in PROVIDERS
        if first_way(one) in {"ip-mode-on-request", "detour", "hostname"}
    }
    rows = ((name, f"`{annotation}`") for name, annotation in found.items() if annotation)
    return _replaced(text, "annotations", _table(("provider", "annotation"), rows))


def _with_kinds(text: str) -> str:
    rows = (
        (
            row.group,
            row.kind,
            ", ".join(row.versions),
            ", ".join(f"`{path}`" for path in row.hosts)
            + (f", if `{row.only_with}` has other than `mesh`" if row.only_with else ""),
            f"`{row.status}`" if row.status else "",
        )
        for row in CONTROLLER_KINDS
    )
    return _replaced(text, "kinds", _table(("API", "kind", "versions", "hostnames", "status"), rows))


def _with_doctor_codes(text: str) -> str:
    meanings = _meanings(text)
    for check in dict.fromkeys(code.check for code in Code):
        rows = (
            (f"`{code}`", code.status.value, meanings.get(code.value, ""))
            for code in Code
            if code.check == check
        )
        text = _replaced(text, check, _table(("code", "status", "meaning, and what to do"), rows))
    return text


def _with_situations(text: str) -> str:
    return _replaced(text, "situations", _table(("situation", "doctor", "plan"), _situations()))


def _situations() -> Iterator[tuple[str, ...]]:
    """Yield a row for each folder: its own line, the doctor's exit code in words, the codes of the plan."""
    words = {code: overall for overall, code in EXIT_CODES.items()}
    for file in sorted(_SITUATIONS.glob("*/README.md")):
        folder = file.parent
        what, _, source = file.read_text("utf-8").strip().rpartition(". Source: ")
        answers = yaml.safe_load((folder / "expected.yaml").read_text("utf-8"))
        doctor = answers.pop("doctor", {})
        plan = answers.get("plan") or answers[max(answers)]
        decided = (plan.get("loadBalancers") or plan.get("names") or {}).values()
        codes = ", ".join(dict.fromkeys(f"{status} `{code}`" for status, code in map(str.split, decided)))
        yield (
            f"[{what}]({folder.name}) ({source.rstrip('.')})",
            f"{words.get(doctor.get('exitCode'), '')}{_not_yet(doctor)}",
            f"{codes}{_not_yet(plan)}",
        )


def _not_yet(answer: Mapping[str, object]) -> str:
    return " (not yet)" if "wrong" in answer else ""


def _meanings(text: str) -> dict[str, str]:
    """Return what a page's rows say of each code: the last cell."""
    return dict(re.findall(r"^\| `(\w+)`†? \|(?:.*? \|)? (.*) \|$", text, re.MULTILINE))


def _with_metrics_and_alerts(text: str) -> str:
    rules = yaml.safe_load(_RULES.read_text("utf-8"))
    for rule in (rule for group in rules["spec"]["groups"] for rule in group["rules"]):
        summary = re.sub(
            r"\{\{ [^$]*\$(?:labels\.)?(\w+)[^}]*\}\}", lambda name: name[1].upper(), _summary(rule)
        )
        after = f", after {rule['for']}" if "for" in rule else ""
        meaning = f"{summary} ({rule['labels']['severity']}{after})"
        made = textwrap.fill(f"- **Meaning:** {meaning}", _WIDTH, subsequent_indent="  ")
        before, heading, section = text.partition(f"### {rule['alert']}\n")
        text = before + heading + made + section[section.index("\n- ") :]
    return _replaced(text, "metrics", "".join(f"- {name}: {meaning}\n" for name, meaning in _metrics()))


def _summary(rule: Mapping[str, Mapping[str, str]]) -> str:
    return rule["annotations"]["summary"]


def _metrics() -> Iterator[tuple[str, str]]:
    """Yield each metric of nodeagent with its HELP; labels are those of a scrape after everything."""
    for made in (everything(), coredns_metrics(Status([]))):
        for family in text_string_to_metric_families(made.exposition().decode()):
            if family.name.startswith("process_"):
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            yield f"`{name}{{{','.join(labels)}}}`".replace("{}", ""), family.documentation


def _with_values(text: str) -> str:
    """Return the chart's page with the comments of values.yaml, up to an empty line of each."""
    rows, path, comment = [], list[str](), list[str]()
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if not line or line.lstrip().startswith("#"):
            comment = [*comment, line.strip("# ")] if line else []
            continue
        key, _, default = line.strip().partition(":")
        del path[(len(line) - len(line.lstrip())) // 2 :]
        path.append(key)
        if default or comment:
            meaning = " ".join(takewhile(bool, comment))
            rows.append((f"`{'.'.join(path)}`", f"`{default.strip()}`" if default else "", meaning))
        comment = []
    return _replaced(text, "values", _table(("value", "default", "meaning"), rows))


def _with_options(text: str) -> str:
    return _replaced(text, "options", f"```yaml\n{chr(10).join(_options())}\n```\n")


def _options() -> Iterator[str]:
    """Yield the whole configuration with its defaults, each option below what its docstring says."""
    for section in msgspec.structs.fields(Config):
        _, meanings = described(section.type)
        yield f"{section.encode_name}:"
        for field in msgspec.structs.fields(section.type):
            meaning = meanings[field.name] + _items(type_info(field.type))
            wrapped = textwrap.wrap(meaning, _WIDTH - 6, break_on_hyphens=False)
            yield from (f"  # {line}" for line in wrapped)
            yield f"  {field.encode_name}:{_shown(field.default)}"


def _items(kind: msgspec.inspect.Type) -> str:
    if not isinstance(kind, VarTupleType) or not isinstance(kind.item_type, StructType):
        return ""
    return f" Each: {{{', '.join(_fields(kind.item_type))}}}."


def _fields(item: StructType) -> Iterator[str]:
    for field in item.fields:
        yield field.encode_name if field.required else f"{field.encode_name}:{_shown(field.default)}"


def _shown(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, Struct):
        its = (f"{key}: {value}" for key, value in msgspec.structs.asdict(default).items())
        return f" {{{', '.join(its)}}}"
    if isinstance(default, bool):
        return f" {str(default).lower()}"
    return f" {list(default)}" if isinstance(default, tuple) else f" {default}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines) + "\n"


def _replaced(text: str, name: str, made: str) -> str:
    """Return a page with this text in its place: below the comment of that name, up to an empty line."""
    before, comment, after = text.partition(f"<!-- code: {name} -->\n")
    if not comment:
        raise ValueError(f"no place for {name}")
    last = "```\n\n" if after.startswith("```") else "\n\n"
    _, _, rest = after.partition(last)
    return f"{before}{comment}{made}\n{rest}" if rest else f"{before}{comment}{made}"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
