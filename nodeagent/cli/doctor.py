"""`nodeagent doctor`: is this node or cluster affected, why, and what is the best fix."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import Struct

from nodeagent.cli import invocation
from nodeagent.cli.report import SCHEMA_VERSION, show_answer
from nodeagent.cli.terminal import Line, Styled, block, section, show, table
from nodeagent.doctor.examination import Examination, identities
from nodeagent.doctor.findings import EXIT_CODES, CheckStatus, Code, Finding, Overall, summarize
from nodeagent.doctor.load_balancer_findings import policy_targets, policy_text
from nodeagent.errors import SourceError, one_line
from nodeagent.fleet import APP, NodeRow, exit_code, read_fleet, read_own
from nodeagent.model.addresses import canonical, defect
from nodeagent.model.facts import Facts
from nodeagent.observe.status import status_path
from nodeagent.sources.kubernetes.errors import NotFoundError

_AGENT = "nodeagent"
_SHOWN_NODES = 10


def _host(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not text:
        return ""
    name = canonical(text)
    if problem := defect(name):
        raise click.BadParameter(f"{text!r}: {problem}; pass one such as www.example.com")
    return name


@click.command(epilog="Example: nodeagent doctor --host www.example.com")
@invocation.common_options
@invocation.option(
    "--host",
    metavar="HOSTNAME",
    default="",
    callback=_host,
    help="Hostname to request from the load balancers.",
)
@invocation.option(
    "--from",
    "origin",
    type=click.Choice(["auto", "node", "nowhere"]),
    default="auto",
    help="node: check this machine as the node. nowhere: check only the cluster's objects. "
    "auto: node, if one of the Node's addresses is on this machine.",
)
@invocation.option(
    "--policy",
    is_flag=True,
    help="Print a MutatingAdmissionPolicy that sets ipMode: Proxy, instead of a report.",
)
@invocation.output_option("doctor-v1")
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
    call = invocation.read(**options, by_active=True)
    if policy:
        snapshot = call.observe()[0]
        targets = policy_targets(snapshot.services, identities(snapshot, call.config.load_balancers))
        show(block(policy_text(targets, call.ask_cluster())), wrap=False)
        return 0
    view = call.view(of_a_node=False, whole=True)
    elsewhere = {"node": "", "nowhere": "requested by --from nowhere"}.get(origin, view.elsewhere)
    if elsewhere and host:
        raise click.UsageError(
            f"--host {host}: a hostname is requested from a node, and {elsewhere}. Run it on a node, or "
            "leave --host out"
        )
    if elsewhere and call.manifests is not None and not call.node_given and origin == "auto":
        elsewhere = "only manifests were read"
    agent, served = None, 0
    if not elsewhere:
        agent = _own_agent(call, view.facts, status_path(Path(call.config.relay.run_dir)))
    elif call.manifests is None:
        agent, served = _fleet(call)
    findings = Examination(
        config=call.config,
        snapshot=view.snapshot,
        facts=view.facts,
        desired=view.desired,
        actual=view.actual,
        cluster=call.ask_cluster(),
        elsewhere=elsewhere,
        host=host,
        agent=agent,
        served=served,
    ).findings()
    where = "this cluster (checked from outside its nodes)" if elsewhere else f"node {call.node_name}"
    overall, sentence = summarize(where, findings)
    document = DoctorDocument(
        SCHEMA_VERSION, "Doctor", call.node_name, not elsewhere, overall, sentence, findings
    )
    show_answer(output, document, doctor_lines(document))
    return EXIT_CODES[overall]


def _own_agent(call: invocation.Invocation, facts: Facts, file: Path) -> Finding:
    row = read_own(call.node_name, file)
    if row is not None:
        return _agents([row], row.reason or "in sync", "$ nodeagent status")
    if any(address.ours for address in facts.addresses):
        seen = f"its relay addresses are on this node, but there is no agent's status file at {file}"
        remedy = (
            "if the agent runs in a pod, run the doctor there:",
            "$ kubectl -n nodeagent exec POD -c agent -- nodeagent doctor",
            "if you only ran nodeagent apply here, this shows what is on this node:",
            "$ nodeagent status",
        )
        return Finding.of(Code.AgentUnknown, _AGENT, seen, remedy=remedy)
    seen = f"no status file of an agent at {file}, and no relay address on this node"
    return Finding.of(Code.AgentAbsent, _AGENT, seen)


def _fleet(call: invocation.Invocation) -> tuple[Finding, int]:
    """Return what the agents of all nodes say, and the least number of load balancers that one serves."""
    try:
        with invocation.connect(call.kubeconfig) as connection:
            rows = read_fleet(connection, APP)
    except NotFoundError:
        return Finding.of(Code.AgentAbsent, _AGENT, f"not installed in the namespace {APP}"), 0
    except SourceError as error:
        return Finding.of(Code.AgentUnknown, _AGENT, one_line(error)), 0
    unsynced = [row for row in rows if row.state != "in-sync"]
    seen = f"{len(rows) - len(unsynced)} of {len(rows)} nodes are in sync"
    evidence = (f"{row.node}: {row.state}: {row.reason}" for row in unsynced[:_SHOWN_NODES])
    served = (row.load_balancers.served if row.load_balancers else 0 for row in rows)
    return _agents(rows, seen, "$ nodeagent fleet", tuple(evidence)), min(served, default=0)


def _agents(rows: Sequence[NodeRow], seen: str, command: str, evidence: tuple[str, ...] = ()) -> Finding:
    code = (Code.AgentInSync, Code.AgentUnknown, Code.AgentNotInSync)[exit_code(rows)]
    remedy = () if code is Code.AgentInSync else (command,)
    return Finding.of(code, _AGENT, seen, evidence, remedy)


GROUPS = {
    "Load balancers": ("load-balancer",),
    "Connections from this node": ("path",),
    "This node": ("objects", "node", "data-plane", "agent", "pods"),
    "Names": ("name",),
}
"""The checks in the order in which they are shown."""

_COLOURS = {
    CheckStatus.PASS: "green",
    CheckStatus.NOT_AFFECTED: "green",
    CheckStatus.AFFECTED: "red",
    CheckStatus.CANNOT_TELL: "yellow",
}
_OVERALL = {"healthy": "green", "affected": "red", "cannot-tell": "yellow"}
_WIDTH = max(len(status.value) for status in CheckStatus)


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
    findings: Sequence[Finding]


def doctor_lines(document: DoctorDocument) -> list[Line]:
    """Return the sentence, a table for each group of checks, and the fixes."""
    findings = document.findings
    lines: list[Line] = [Styled(document.sentence, _OVERALL[document.overall], bold=True), ""]
    for title, checks in GROUPS.items():
        shown = title if document.on_node else title.replace("This node", "Cluster")
        lines += section(shown, _table([row for check in checks for row in findings if row.check == check]))
    lines += section("What to do", _remedies(findings))
    return lines[:-1]


def _table(rows: Sequence[Finding]) -> Iterator[Line]:
    cells = [
        (Styled(row.status.value, _COLOURS[row.status]), row.subject, f"{one_line(row.seen)} [{row.code}]")
        for row in rows
    ]
    for finding, line in zip(rows, table(cells, _WIDTH), strict=True):
        yield line
        yield from (f"{'':{_WIDTH}}  - {one_line(entry)}" for entry in finding.evidence)


def _remedies(findings: Iterable[Finding]) -> Iterator[Line]:
    by_remedy: dict[tuple[str, ...], dict[str, None]] = {}
    for finding in findings:
        if finding.remedy:
            by_remedy.setdefault(finding.remedy, {})[finding.subject] = None
    for remedy, subjects in by_remedy.items():
        yield ", ".join(one_line(subject) for subject in subjects)
        yield from map(_step, remedy)
    if by_remedy:
        yield "docs/doctor-codes.md explains each [code]"


def _step(step: str) -> str:
    if step.startswith("  "):
        return f"    {step}"
    return f"{'    ' if step.startswith('$ ') else '- '}{one_line(step)}"
