"""`nodeagent plan`, `apply`, `status` and `cleanup`: the commands that act once, on this node."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import click

from nodeagent.agent.comparison import compare, read_listener_status
from nodeagent.agent.convergence import apply_plan, clean_up, out_of_reach
from nodeagent.agent.node_lock import LOCK_SECONDS, exclusive
from nodeagent.cli import invocation
from nodeagent.cli.report import convergence_lines, report, report_lines, show_answer
from nodeagent.cli.terminal import show
from nodeagent.components.node import build_components
from nodeagent.config.reading import read_config
from nodeagent.errors import ApplyError
from nodeagent.observe.status import remove_status, status_path
from nodeagent.sources.node import default_node_name


@click.command(epilog="Example: nodeagent plan --config /etc/nodeagent.yaml")
@invocation.common_options
@invocation.output_option("report-v1")
@invocation.adopt_option
def plan(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show what would change on this node, and why; change nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    return _report("Plan", invocation.read(**options), output)


@click.command(epilog="Example: nodeagent apply --config /etc/nodeagent.yaml")
@invocation.common_options
@invocation.adopt_option
@invocation.any_machine_option
def apply(*, any_machine: bool, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Apply the changes that `nodeagent plan` shows, once.

    Exit code 0: done, or nothing to do. 1: a component failed, or a file, a Node or a Service of manifests
    can't be read; the rest was applied. Also 1 if none of the Node's addresses is on this machine; then
    nothing was changed.
    """
    call = invocation.read(**options)
    with exclusive(Path(call.config.relay.run_dir), LOCK_SECONDS):
        view = call.view()
        if not any_machine:
            invocation.refuse_other_machine(view.snapshot.node, view.here)
        if hidden := out_of_reach(view.actual):
            raise ApplyError("\n".join(hidden.values()))
        node_pass = apply_plan(view.desired, view.actual)
    applied = "applied; nodeagent doctor shows whether connections work"
    verdict = applied if node_pass.changes else "in sync, nothing to do"
    show(convergence_lines(call.node_name, node_pass, verdict, "nodeagent apply"))
    return 1 if node_pass.errors or node_pass.desired.undetermined else 0


@click.command(epilog="Example: nodeagent status --output json")
@invocation.common_options
@invocation.output_option("report-v1")
def status(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show the actual state of this node, with reasons.

    Lists each load balancer and each hostname. If the running agent rejected the configuration, this is
    reported by the one that is active.

    Exit code 0: in sync. 2: drifted, or the configuration was rejected. 1: something could not be read.
    """
    return _report("Status", invocation.read(**options, by_active=True), output)


def _report(kind: Literal["Plan", "Status"], call: invocation.Invocation, output: str) -> int:
    view = call.view()
    desired, actual = view.desired, view.actual
    comparison = compare(desired, actual, from_nothing=kind == "Plan")
    listeners = read_listener_status(desired, actual) if kind == "Status" else None
    document = report(kind, call.node_name, desired, comparison, listeners)
    show_answer(output, document, report_lines(document, view.elsewhere))
    if comparison.errors or desired.undetermined:
        return 1
    silent = any(not listener.answers for listener in (listeners or {}).values())
    return invocation.PENDING if comparison.changes or silent or call.rejected else 0


@click.command(epilog="Example: nodeagent cleanup")
@invocation.config_option
def cleanup(config: Path | None) -> int:
    """Remove everything that nodeagent set up on this node.

    That is: its lines in the hosts file, DNAT rules, relay and relay addresses. Needs no cluster.
    If relay.runDir, relay.interface, the relay ranges or hosts.file are not the default, pass the
    configuration that set them up.

    Exit code 0: nothing is left. 1: something could not be removed.
    """
    options = read_config(config)
    run_dir = Path(options.relay.run_dir)
    components = build_components(options, adopt=False)
    with exclusive(run_dir, LOCK_SECONDS):
        node_pass = clean_up(components)
        with suppress(OSError):  # what a killed agent left would keep the run directory; it is another's file
            remove_status(status_path(run_dir))
    verdict = "nothing of nodeagent is left here"
    show(convergence_lines(default_node_name(), node_pass, verdict, "nodeagent cleanup"))
    return 1 if node_pass.errors else 0
