"""Plan, status and the steps of apply as text for a person. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from nodeagent.agent.convergence import Comparison, NodePass
from nodeagent.cli.terminal import Line, Styled, block, terminal_text
from nodeagent.components.component import ComponentName
from nodeagent.components.node import ListenerStatus
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision, Verdict
from nodeagent.printable import shown_name

_COLOURS = {Verdict.SERVED: "green", Verdict.SKIPPED: "yellow", Verdict.REFUSED: "red"}
_TITLES: Mapping[ComponentName, str] = {
    "addresses": "Relay addresses",
    "relay": "Relay (HAProxy)",
    "dnat": "DNAT",
    "hosts": "Hosts file",
}


def plan_text(node_name: str, desired: Desired, comparison: Comparison) -> str:
    """Return all that would change, and why, as `terminal_text` returns it."""
    return terminal_text(
        [
            *_decisions(desired, comparison.notes),
            *_changes(comparison),
            *_errors(comparison.errors),
            _verdict(node_name, comparison, "run nodeagent apply"),
        ]
    )


def status_text(
    node_name: str,
    desired: Desired,
    comparison: Comparison,
    listeners: Mapping[Endpoint, ListenerStatus],
) -> str:
    """Return the actual state of the node, for each load balancer and each hostname."""
    lines: list[Line] = []
    for decision in desired.load_balancers:
        lines += _load_balancer(decision, desired)
        lines += [
            _listener_line(listeners[listener.bind])
            for listener in desired.listeners
            if listener.load_balancer == decision.load_balancer
        ]
    return terminal_text(
        [
            *_section("Load balancers", lines),
            *_section("Names", _names(desired.names, _written_marks(desired, comparison.written_names))),
            *_notes(desired, comparison.notes),
            *_section("Drift", [_TITLES[name] for name in comparison.pending]),
            *_errors(comparison.errors),
            _verdict(node_name, comparison, "nodeagent plan shows the changes, nodeagent apply makes them"),
        ]
    )


def coredns_text(decided: Desired, remarks: Iterable[str], diffs: Mapping[str, str]) -> str:
    """Return what would change in CoreDNS's ConfigMaps and why; `diffs` are by ConfigMap, unified."""
    lines: list[Line] = [*_decisions(decided, remarks)]
    for path, diff in diffs.items():
        lines += _section(f"ConfigMap {path}", _coloured(diff))
    if diffs:
        lines.append(f"CoreDNS: to change: {', '.join(diffs)}; nodeagent coredns run applies this")
    else:
        lines.append("CoreDNS: in sync, nothing to do")
    return terminal_text(lines)


def convergence_text(node_name: str, done: NodePass, nothing: str) -> str:
    """Return what was done, step by step, what was not, and why.

    `nothing` is the text if there was no step.
    """
    lines: list[Line] = [line for change in done.changes for line in _step(change.component, change.text)]
    lines += _section("Not served", _refusals(done.desired))
    if not done.changes and not done.errors:
        lines.append(f"node {node_name}: {nothing}")
    lines += _errors(done.errors)
    return terminal_text(lines[:-1] if lines[-1] == "" else lines)


def _refusals(desired: Desired) -> Iterator[Line]:
    """Yield what an administrator should check.

    Load balancers and hostnames that were rejected, unusable objects.
    """
    for decision in desired.load_balancers:
        if decision.verdict is Verdict.REFUSED:
            yield from _load_balancer(decision, desired)
    yield from _names(name for name in desired.names if name.verdict is Verdict.REFUSED)
    yield from (f"{entry.where}: {entry.reason}" for entry in desired.unreadable)


def _step(component: str, text: str) -> list[str]:
    first, *rest = block(text)
    width = len("addresses")
    return [f"{component:{width}}  {first}", *(f"{'':{width}}  {line}" for line in rest)]


def _decisions(desired: Desired, remarks: Iterable[str]) -> Iterator[Line]:
    lines = [line for decision in desired.load_balancers for line in _load_balancer(decision, desired)]
    yield from _section("Load balancers", lines)
    yield from _section("Names", _names(desired.names))
    yield from _notes(desired, remarks)


def _load_balancer(decision: LoadBalancerDecision, desired: Desired) -> list[Line]:
    ports = sorted(
        {
            listener.bind.port
            for listener in desired.listeners
            if listener.load_balancer == decision.load_balancer
        }
    )
    route = ", ".join(map(str, decision.addresses)) or "no address"
    if ports:
        relays = ", ".join(map(str, decision.relay_addresses))
        route += f" -> {relays} port {', '.join(map(str, ports))}"
    said = f" {decision.load_balancer.path}: {route}: {decision.reason}{_code(decision)}"
    return [
        (_verdict_word(decision.verdict), said),
        *(f"         {remark}" for remark in decision.remarks),
    ]


def _written_marks(desired: Desired, written: frozenset[str] | None) -> dict[str, str]:
    """Return the state of each served hostname, in a word; unknown if the hosts file could not be read."""
    served = [decision.name for decision in desired.names if decision.verdict is Verdict.SERVED]
    if written is None:
        return dict.fromkeys(served, " [unknown]")
    return {name: " [written]" if name in written else " [not written]" for name in served}


def _names(decisions: Iterable[NameDecision], marks: Mapping[str, str] = MappingProxyType({})) -> list[Line]:
    lines: list[Line] = []
    for decision in decisions:
        state = marks.get(decision.name, "") if decision.verdict is Verdict.SERVED else ""
        said = (
            f" {shown_name(decision.name)}{state} ({decision.claimed_by}): {decision.reason}{_code(decision)}"
        )
        lines.append((_verdict_word(decision.verdict), said))
    return lines


def _code(decision: LoadBalancerDecision | NameDecision) -> str:
    """Return the code of what is not served, by which docs/reasons.md explains it."""
    return "" if decision.verdict is Verdict.SERVED else f" [{decision.code}]"


def _listener_line(found: ListenerStatus) -> Line:
    answers = Styled("answers") if found.answers else Styled("does not answer", "red")
    redirected = ", ".join(map(str, found.redirected)) or "nothing"
    backend = f", ingress controller {found.backend}" if found.backend else ""
    return f"         relay {found.bind} ", answers, f", redirected to it: {redirected}{backend}"


def _notes(desired: Desired, remarks: Iterable[str]) -> Iterator[Line]:
    yield from _section("Not usable", [f"{entry.where}: {entry.reason}" for entry in desired.unreadable])
    yield from _section("Notes", [*desired.remarks, *remarks])


def _changes(comparison: Comparison) -> Iterator[Line]:
    for name, preview in comparison.previews.items():
        title = f"{_TITLES[name]} ({preview.how})" if preview.how else _TITLES[name]
        yield from _section(title, _coloured(preview.text) if preview.is_diff else block(preview.text))


def _coloured(text: str) -> list[Line]:
    colours = {"+": "green", "-": "red", "!": "yellow"}
    return [Styled(line, colours.get(line[:1])) for line in block(text)]


def _errors(errors: Mapping[ComponentName, str]) -> Iterator[Line]:
    for component, text in errors.items():
        yield from _section(Styled(f"{_TITLES[component]} failed", "red", bold=True), block(text))


def _section(title: str | Styled, lines: Iterable[Line]) -> Iterator[Line]:
    found = list(lines)
    if found:
        yield title if isinstance(title, Styled) else Styled(title, bold=True)
        yield from (("  ", *(line if isinstance(line, tuple) else (line,))) for line in found)
        yield ""


def _verdict(node_name: str, comparison: Comparison, advice: str) -> str:
    pending = ", ".join(_TITLES[name] for name in comparison.pending)
    if comparison.errors:
        failed = ", ".join(_TITLES[name] for name in comparison.errors)
        return f"node {node_name}: could not determine: {failed}" + (
            f"; to change: {pending}" if pending else ""
        )
    if pending:
        return f"node {node_name}: to change: {pending}; {advice}"
    return f"node {node_name}: in sync, nothing to do"


def _verdict_word(verdict: Verdict) -> Styled:
    return Styled(f"{verdict.value:8}", _COLOURS[verdict])
