"""`nodeagent doctor`: is this node or cluster affected, why, and what is the best fix."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import click
from msgspec import Struct

from nodeagent.cli.command_options import common_options, connect, option, output_option
from nodeagent.cli.invocation import Invocation, invocation
from nodeagent.cli.report import SCHEMA_VERSION, show_answer
from nodeagent.cli.terminal import Line, Styled, block, section, show, table
from nodeagent.doctor.examination import FleetReport, Question, detections, examine
from nodeagent.doctor.findings import CheckVerdict, Code, Finding, Overall, Summary, summarize
from nodeagent.doctor.policy import policy_targets, policy_text
from nodeagent.errors import SourceError, one_line
from nodeagent.plan.hostnames import canonical, defect
from nodeagent.sources.kubernetes.errors import NotFoundError

_SHOWN_NODES = 10


def _host(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not text:
        return ""
    name = canonical(text)
    if problem := defect(name):
        raise click.BadParameter(f"{text!r}: {problem}")
    return name


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
    help="node: check this machine as the node. nowhere: check only the cluster's objects. "
    "auto: node, if one of the Node's addresses is on this machine.",
)
@option(
    "--policy",
    is_flag=True,
    help="Print a MutatingAdmissionPolicy that sets ipMode: Proxy, instead of a report.",
)
@output_option("doctor-v1")
def doctor(
    *,
    output: str,
    host: str,
    origin: str,
    policy: bool,
    **options: Any,  # noqa: ANN401 - click's own
) -> int:
    """Say if this node or cluster is affected, and the best fix.

    Changes nothing.

    Exit code 0: healthy. 2: affected and not fixed yet. 1: could not determine.
    """
    call = invocation(**options)
    if policy:
        snapshot = call.snapshot()
        targets = policy_targets(snapshot.services, detections(snapshot, call.config.load_balancers))
        show(block(policy_text(targets, call.ask_cluster())))
        return 0
    view = call.view(of_a_node=False)
    elsewhere = {"node": "", "nowhere": "requested by --from nowhere"}.get(origin, view.elsewhere)
    findings = examine(
        Question(
            config=call.config,
            snapshot=view.snapshot,
            facts=view.facts,
            desired=view.desired,
            actual=view.actual,
            cluster=call.ask_cluster(),
            elsewhere=elsewhere,
            host=host,
            fleet=_fleet(call) if elsewhere and call.manifests is None else None,
        )
    )
    where = "this cluster (seen from outside its nodes)" if elsewhere else f"node {call.node_name}"
    summary = summarize(where, findings)
    document = doctor_document(call.node_name, summary, findings, on_node=not elsewhere)
    show_answer(output, document, doctor_lines(summary, findings))
    return summary.exit_code


def _fleet(call: Invocation) -> FleetReport:
    """Ask the agents of all nodes, as `nodeagent fleet` does."""
    from nodeagent.fleet.asking import Asking, ask_all, exit_code, worst_first  # noqa: PLC0415 - off a node
    from nodeagent.fleet.roster import APP, read_roster  # noqa: PLC0415 - the same

    try:
        with connect(call.kubeconfig) as connection:
            asking = Asking(connection, APP)
            rows = worst_first(ask_all(asking, read_roster(connection, asking.namespace)))
    except NotFoundError:
        return FleetReport(Finding(Code.FleetAbsent, "nodeagent", f"not installed in the namespace {APP}"))
    except SourceError as error:
        return FleetReport(Finding(Code.FleetUnknown, "nodeagent", one_line(error)))
    others = [row for row in rows if row.state != "in-sync"]
    finding = Finding(
        (Code.FleetInSync, Code.FleetUnknown, Code.FleetNotInSync)[exit_code(rows)],
        "nodeagent",
        f"{len(rows) - len(others)} of {len(rows)} nodes are in sync",
        tuple(f"{row.node}: {row.state}: {row.reason}" for row in others[:_SHOWN_NODES]),
        ("$ nodeagent fleet",) if others else (),
    )
    served = (row.load_balancers.served if row.load_balancers else 0 for row in rows)
    return FleetReport(finding, min(served, default=0))


GROUPS = {
    "Load balancers": ("load-balancer", "trust"),
    "Connections from this node": ("path", "certificate"),
    "How this node is wired": (
        "objects",
        "node",
        "fleet",
        "kube-proxy",
        "cni",
        "packet-filter",
        "hosts-file",
        "name-order",
        "resolver",
        "selinux",
    ),
    "nodeagent on this node": ("agent", "relay", "dnat", "pods", "hosts-lines"),
    "Names": ("name",),
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


class DoctorFinding(Struct, frozen=True, rename="camel"):
    """One check of one thing.

    `code` determines `verdict` (docs/doctor-codes.md). Lines of `remedy` that begin with `$ ` are commands.
    """

    check: str
    code: str
    verdict: CheckVerdict
    subject: str
    seen: str
    evidence: tuple[str, ...]
    remedy: tuple[str, ...]


class DoctorDocument(Struct, frozen=True, rename="camel"):
    """The answer of `doctor`.

    `onNode` says whether this machine was checked as the node; `overall` is what the exit code says:
    healthy 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Doctor"]
    node: str
    on_node: bool
    overall: Overall
    sentence: str
    findings: list[DoctorFinding]


def doctor_document(
    node_name: str, summary: Summary, findings: Sequence[Finding], *, on_node: bool
) -> DoctorDocument:
    """Return the answer of `doctor`."""
    found = [
        DoctorFinding(one.check, one.code.value, one.verdict, one.subject, one.seen, one.evidence, one.remedy)
        for one in findings
    ]
    return DoctorDocument(
        SCHEMA_VERSION, "Doctor", node_name, on_node, summary.overall, summary.sentence, found
    )


def doctor_lines(summary: Summary, findings: Sequence[Finding]) -> list[Line]:
    """Return the sentence, a table for each group of checks, and the fixes."""
    lines: list[Line] = [Styled(summary.sentence, _OVERALL[summary.overall], bold=True), ""]
    for title, checks in GROUPS.items():
        lines += section(title, _table([one for check in checks for one in findings if one.check == check]))
    lines += section("What to do", _remedies(findings))
    return lines[:-1]


def _table(rows: Sequence[Finding]) -> Iterator[Line]:
    cells = [
        (
            Styled(one.verdict.value, _COLOURS[one.verdict]),
            one.subject,
            f"{one_line(one.seen)} [{one.code.value}]",
        )
        for one in rows
    ]
    for finding, line in zip(rows, table(cells, _WIDTH), strict=True):
        yield line
        yield from (f"{'':{_WIDTH}}  - {one_line(entry)}" for entry in finding.evidence)


def _remedies(findings: Iterable[Finding]) -> Iterator[Line]:
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for finding in findings:
        if finding.remedy:
            found.setdefault(finding.remedy, {})[finding.subject] = None
    for remedy, subjects in found.items():
        yield ", ".join(one_line(subject) for subject in subjects)
        yield from (f"{'    ' if step.startswith('$ ') else '- '}{one_line(step)}" for step in remedy)
    if found:
        yield "docs/doctor-codes.md explains each [code]"
