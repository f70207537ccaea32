"""`nodeagent doctor`: is this node or cluster affected, why, and what is the best fix."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import click
import msgspec
from msgspec import Struct

from nodeagent.cli.command_options import common_options, option
from nodeagent.cli.invocation import invocation
from nodeagent.cli.terminal import Line, Styled, block, show, show_text, terminal_text
from nodeagent.doctor.examination import Question, detections, examine, why_elsewhere
from nodeagent.doctor.findings import CheckVerdict, Finding, Summary, summarize
from nodeagent.doctor.policy import policy_targets, policy_text
from nodeagent.errors import one_line
from nodeagent.plan.hostnames import canonical, defect
from nodeagent.sources.probes.registry_http import ImageReference


def _host(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not text:
        return ""
    name = canonical(text)
    if problem := defect(name):
        raise click.BadParameter(f"{text!r}: {problem}")
    return name


def _image(_context: click.Context, _parameter: click.Parameter, text: str | None) -> ImageReference | None:
    try:
        return ImageReference.parse(text) if text else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(epilog="Example: nodeagent doctor --host www.example.com")
@common_options
@option(
    "--host",
    metavar="HOSTNAME",
    default="",
    callback=_host,
    help="Hostname to request from the load balancers.",
)
@option(
    "--from",
    "origin",
    type=click.Choice(["auto", "node", "nowhere"]),
    default="auto",
    show_default=True,
    help="node: check this machine as the node. nowhere: check only the cluster's objects. "
    "auto: node, if one of the Node's addresses is on this machine.",
)
@option(
    "--policy",
    is_flag=True,
    help="Print a MutatingAdmissionPolicy that sets ipMode: Proxy, instead of a report.",
)
@option("--pull", "image", metavar="IMAGE", callback=_image, help="Test an image pull, step by step.")
@option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format; json: docs/schema/doctor-v1.json.",
)
def doctor(
    *,
    output: str,
    host: str,
    origin: str,
    policy: bool,
    image: ImageReference | None,
    **options: Any,  # noqa: ANN401 - click's own
) -> int:
    """Say if this node or cluster is affected, why, and the best fix.

    Changes nothing.

    Exit code 0: healthy. 2: affected and not fixed yet. 1: could not determine.
    """
    call = invocation(**options)
    if policy:
        snapshot = call.snapshot()
        targets = policy_targets(snapshot.services, detections(snapshot, call.config.load_balancers))
        show(block(policy_text(targets, call.ask_cluster())))
        return 0
    actual = call.actual_state()
    view = call.view(actual)
    elsewhere = {"node": "", "nowhere": "requested by --from nowhere"}.get(
        origin, why_elsewhere(view.snapshot, view.facts)
    )
    findings = examine(
        Question(
            config=call.config,
            snapshot=view.snapshot,
            facts=view.facts,
            desired=view.desired,
            actual=actual,
            cluster=call.ask_cluster(),
            elsewhere=elsewhere,
            host=host,
            image=image,
        )
    )
    where = "this cluster (seen from outside its nodes)" if elsewhere else f"node {call.node_name}"
    summary = summarize(where, findings)
    if output == "json":
        show_text(document(call.node_name, not elsewhere, summary, findings))
    else:
        show_text(doctor_text(summary, findings))
    return summary.exit_code


DOCTOR_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field or code is removed or changes its meaning; new ones alone do not raise it."""


class DoctorFinding(Struct, frozen=True, rename="camel"):
    """One check of one thing.

    `code` determines `verdict`; docs/doctor.md explains each code. Lines of `remedy` that begin with `$ ` are
    commands.
    """

    check: str
    code: str
    verdict: CheckVerdict
    subject: str
    seen: str
    evidence: list[str]
    remedy: list[str]


class DoctorDocument(Struct, frozen=True, rename="camel"):
    """The whole answer.

    `onNode` says whether this machine was checked as the node; `overall` is what the exit code says:
    healthy 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Doctor"]
    node: str
    on_node: bool
    overall: Literal["healthy", "affected", "cannot-tell"]
    sentence: str
    findings: list[DoctorFinding]


def document(node_name: str, on_node: bool, summary: Summary, findings: Sequence[Finding]) -> str:  # noqa: FBT001 - a field
    """Return the answer as indented JSON with a final newline. Pure."""
    found = DoctorDocument(
        schema_version=DOCTOR_SCHEMA_VERSION,
        kind="Doctor",
        node=node_name,
        on_node=on_node,
        overall=summary.overall,
        sentence=summary.sentence,
        findings=[
            DoctorFinding(
                check=finding.check,
                code=finding.code.value,
                verdict=finding.verdict,
                subject=finding.subject,
                seen=finding.seen,
                evidence=list(finding.evidence),
                remedy=list(finding.remedy),
            )
            for finding in findings
        ],
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


# The doctor's findings, as text for a person. Pure.


GROUPS = {
    "Load balancers": ("load-balancer", "trust"),
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
    CheckVerdict.PASS: "green",
    CheckVerdict.NOT_AFFECTED: "green",
    CheckVerdict.AFFECTED: "red",
    CheckVerdict.WARNING: "yellow",
    CheckVerdict.CANNOT_TELL: "yellow",
}
_OVERALL = {"healthy": "green", "affected": "red", "cannot-tell": "yellow"}
_WIDTH = max(len(verdict.value) for verdict in CheckVerdict)


def doctor_text(summary: Summary, findings: Sequence[Finding]) -> str:
    """Return the sentence, a table for each group of checks, the fixes, as `terminal_text` returns them."""
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
