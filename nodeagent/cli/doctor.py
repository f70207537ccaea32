"""`nodeagent doctor`: is this node or cluster affected, why, and what is the best fix."""

from typing import Any

import click

from nodeagent.cli.doctor_report import doctor_text, document
from nodeagent.cli.invocation import invocation
from nodeagent.cli.options import common_options, option
from nodeagent.cli.terminal import block, show, show_text
from nodeagent.doctor.examination import Question, detections, examine, why_elsewhere
from nodeagent.doctor.findings import summarize
from nodeagent.doctor.policy import policy_targets, policy_text
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
