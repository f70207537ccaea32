"""Pure: what the doctor found, as text for a person."""

from collections.abc import Iterable, Iterator, Sequence

from nodeagent.cli.terminal import Line, Styled, terminal_text
from nodeagent.doctor.codes import Verdict
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.verdict import Summary
from nodeagent.errors import one_line

GROUPS = {
    "Load balancers": ("load-balancer",),
    "Connections from this node": ("path", "certificate"),
    "How this node is wired": (
        "node",
        "kube-proxy",
        "cni",
        "packet-filter",
        "hosts-file",
        "name-order",
        "resolver",
        "selinux",
    ),
    "nodeagent on this node": ("agent", "relay", "dnat", "pods", "hosts-lines", "images"),
    "Names": ("name",),
    "Pull": ("pull",),
}
"""The checks in the order in which they are shown."""

_COLOURS = {
    Verdict.PASS: "green",
    Verdict.NOT_AFFECTED: "green",
    Verdict.AFFECTED: "red",
    Verdict.WARNING: "yellow",
    Verdict.CANNOT_TELL: "yellow",
}
_OVERALL = {"healthy": "green", "affected": "red", "cannot-tell": "yellow"}
_WIDTH = max(len(verdict.value) for verdict in Verdict)


def doctor_text(summary: Summary, findings: Sequence[Finding]) -> str:
    """The sentence, a table for each group of checks, the remedies, as `terminal_text` gives it."""
    lines: list[Line] = [Styled(summary.sentence, _OVERALL[summary.overall], bold=True), ""]
    for title, checks in GROUPS.items():
        rows = [finding for check in checks for finding in findings if finding.check == check]
        if rows:
            lines += [Styled(title, bold=True), *_table(rows), ""]
    lines += _remedies(findings)
    return terminal_text(lines[:-1] if lines[-1] == "" else lines)


def _table(rows: Sequence[Finding]) -> Iterator[Line]:
    width = max(len(one_line(finding.subject)) for finding in rows)
    for finding in rows:
        word = Styled(f"{finding.verdict.value:{_WIDTH}}", _COLOURS[finding.verdict])
        subject = f"{one_line(finding.subject):{width}}"
        yield "  ", word, f"  {subject}  {one_line(finding.seen)} [{finding.code.value}]"
        yield from (f"  {'':{_WIDTH}}  - {one_line(line)}" for line in finding.evidence)


def _remedies(findings: Iterable[Finding]) -> Iterator[Line]:
    found: dict[tuple[str, ...], list[str]] = {}
    for finding in findings:
        if finding.remedy:
            found.setdefault(finding.remedy, []).append(finding.subject)
    if not found:
        return
    yield Styled("What to do", bold=True)
    for remedy, subjects in found.items():
        yield f"  {', '.join(one_line(subject) for subject in subjects)}"
        for step in remedy:
            command = step.startswith("$ ")
            yield f"  {'    ' if command else '- '}{one_line(step)}"
    yield "  docs/doctor.md explains each [code]"
