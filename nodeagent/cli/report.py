"""What commands report of decisions and changes: a document (docs/schema/), and its text. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from nodeagent.agent.comparison import Comparison, ListenerStatus
from nodeagent.agent.convergence import NodePass
from nodeagent.cli.terminal import Line, Styled, block, section, show, show_text
from nodeagent.components.component import COMPONENTS, TITLES, ComponentName, Diff
from nodeagent.errors import shown_name
from nodeagent.model.addresses import Endpoint
from nodeagent.model.decisions import DecisionStatus, LoadBalancerDecision, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.observe.status import RelayStatus

if TYPE_CHECKING:
    from nodeagent.coredns.editing import Edit, Edits

SCHEMA_VERSION: Final = "1"
"""Of each document: raised whenever a field is removed or changes its meaning; new ones do not raise it."""


class LoadBalancer(Struct, frozen=True, rename="camel"):
    """One LoadBalancer Service: the decision and the reason.

    `code` is the reason's stable short name. `listeners` is null in a plan, which checks no listener.
    """

    service: ObjectRef
    status: Literal["served", "skipped", "refused"]
    code: str
    reason: str
    addresses: list[str]
    relay_addresses: list[str]
    ports: list[int]
    remarks: tuple[str, ...]
    listeners: list[ListenerStatus] | None


class Name(Struct, frozen=True, rename="camel"):
    """One hostname: the decision and the reason.

    `written` says whether the managed block has it now; null if the hosts file could not be read.
    """

    name: str
    claimed_by: ObjectRef
    service: ObjectRef | None
    status: Literal["served", "skipped", "refused"]
    code: str
    reason: str
    written: bool | None


class ComponentChange(Struct, frozen=True, rename="camel"):
    """What would change in one component: what is added or altered, what is removed, a line for each.

    `preview` is the exact input, such as a transaction or a unified diff, and `how` says what it is.
    """

    add: list[str]
    remove: list[str]
    how: str
    preview: str


class Document(Struct, frozen=True, rename="camel"):
    """The answer of `plan` and `status`. `inSync` is true if nothing is to be changed and nothing failed.

    `changes` has each component that could be read, also one with nothing to do.
    """

    schema_version: Literal["1"]
    kind: Literal["Plan", "Status"]
    node: str
    in_sync: bool
    relay: RelayStatus
    changes: dict[ComponentName, ComponentChange]
    errors: Mapping[ComponentName, str]
    load_balancers: list[LoadBalancer]
    names: list[Name]
    unreadable: tuple[Unreadable, ...]
    remarks: list[str]


def encode(document: Struct) -> str:
    """Return the document as indented JSON in ASCII, whatever the output's encoding, with a final newline."""
    return json.dumps(msgspec.to_builtins(document), indent=2) + "\n"


def show_answer(output: str, document: Struct, lines: Iterable[Line], *, wrap: bool = True) -> None:
    """Print a document as JSON, or its text: as `--output` says."""
    if output == "json":
        show_text(encode(document))
    else:
        show(lines, wrap=wrap)


def report(
    kind: Literal["Plan", "Status"],
    node_name: str,
    desired: Desired,
    comparison: Comparison,
    listeners: Mapping[Endpoint, ListenerStatus] | None = None,
) -> Document:
    """Return the answer of `plan` or `status`; `listeners` for the latter."""
    return Document(
        schema_version=SCHEMA_VERSION,
        kind=kind,
        node=node_name,
        in_sync=comparison.in_sync,
        relay=comparison.relay,
        changes={
            name: _component_change(comparison.changes.get(name))
            for name in COMPONENTS
            if name not in comparison.errors
        },
        errors=comparison.errors,
        load_balancers=[_load_balancer(decision, desired, listeners) for decision in desired.load_balancers],
        names=[_name(decision, comparison.written_names) for decision in desired.names],
        unreadable=desired.unreadable,
        remarks=[*desired.remarks, *comparison.notes],
    )


def _component_change(change: Diff | None) -> ComponentChange:
    if change is None:
        return ComponentChange([], [], "", "")
    lines = str(change).splitlines()
    return ComponentChange(
        [line for line in lines if not line.startswith("- ")],
        [line for line in lines if line.startswith("- ")],
        change.how,
        change.text,
    )


def _pending(document: Document) -> dict[ComponentName, ComponentChange]:
    return {name: diff for name, diff in document.changes.items() if diff.add or diff.remove or diff.preview}


def _load_balancer(
    decision: LoadBalancerDecision,
    desired: Desired,
    listeners: Mapping[Endpoint, ListenerStatus] | None = None,
) -> LoadBalancer:
    binds = [
        listener.bind for listener in desired.listeners if listener.load_balancer == decision.load_balancer
    ]
    return LoadBalancer(
        service=decision.load_balancer,
        status=decision.status.value,
        code=decision.code,
        reason=decision.reason,
        addresses=[*map(str, decision.addresses)],
        relay_addresses=[*map(str, decision.relay_addresses)],
        ports=sorted({bind.port for bind in binds}),
        remarks=decision.remarks,
        listeners=None if listeners is None else [listeners[bind] for bind in binds],
    )


def _name(decision: NameDecision, written: frozenset[str] | None = None) -> Name:
    return Name(
        name=decision.name,
        claimed_by=decision.claimed_by,
        service=decision.load_balancer,
        status=decision.status.value,
        code=decision.code,
        reason=decision.reason,
        written=None if written is None else decision.name in written,
    )


_COMPONENT_WIDTH = max(map(len, COMPONENTS))
_COLOURS = {"served": "green", "skipped": "yellow", "refused": "red"}
_PENDING = Styled("pending ", "yellow")


def report_lines(document: Document, elsewhere: str = "") -> Iterator[Line]:
    """Yield the document for a person: each decision, the changes or the drift, errors, and one sentence.

    `elsewhere`: why this machine may not be the node. Then what is on it says nothing of the node.
    """
    yield from _decisions(
        document.load_balancers,
        [_name_line(hostname, written=document.kind == "Status") for hostname in document.names],
        document.unreadable,
        document.remarks,
    )
    if document.kind == "Status":
        if serving := document.relay.version:
            pod = f" of pod {document.relay.pod}" if document.relay.pod else ""
            yield from section("Relay", [f"HAProxy {serving}{pod} serves"])
        yield from section("Drift", [TITLES[name] for name in _pending(document)])
        advice = "nodeagent plan shows the changes, nodeagent apply makes them"
        on_it = "run nodeagent status on it"
    else:
        for name, change in _pending(document).items():
            yield from _change(name, change)
        advice, on_it = "run nodeagent apply", "run nodeagent apply on it"
    yield from _errors(document.errors)
    yield f"node {document.node}: {_conclusion(document, on_it if elsewhere else advice, elsewhere)}"


def coredns_lines(desired: Desired, edits: "Edits") -> Iterator[Line]:
    """Yield what would change in CoreDNS's ConfigMaps, and why."""
    yield from _decisions(
        [_load_balancer(decision, desired) for decision in desired.load_balancers],
        [_name_line(_name(decision)) for decision in edits.decisions],
        desired.unreadable,
        [*desired.remarks, *edits.remarks],
    )
    diffs: dict[str, list[str]] = {}
    for edit in edits.pending:
        diffs.setdefault(edit.config_map, []).extend(edit_lines(edit))
    for path, lines in diffs.items():
        yield from section(f"ConfigMap {path}", map(_coloured, lines))
    if desired.undetermined:
        yield f"CoreDNS: could not determine: {_unusable(desired.undetermined)}"
    elif diffs:
        yield f"CoreDNS: to change: {', '.join(diffs)}; nodeagent coredns run applies this"
    else:
        yield "CoreDNS: in sync, nothing to do"


def edit_lines(edit: "Edit") -> list[str]:
    """Return the removed lines, then the added ones; in linear time, unlike difflib."""
    where = f"{edit.config_map}/{edit.key}"
    before, after = ((text or "").splitlines() for text in (edit.before, edit.after))
    for _ in range(2):  # What both begin with, and then what both end with, is left out.
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        before, after = before[same:][::-1], after[same:][::-1]
    return [
        f"--- {where}",
        f"+++ {where}",
        *(f"-{line}" for line in _beyond(before, after)),
        *(f"+{line}" for line in _beyond(after, before)),
    ]


def _beyond(lines: Iterable[str], others: Iterable[str]) -> Iterator[str]:
    """Yield the lines that the others do not have, or not as often."""
    counts = Counter(others)
    for line in lines:
        counts[line] -= 1
        if counts[line] < 0:
            yield line


def convergence_lines(node_name: str, done: NodePass, verdict: str, command: str) -> Iterator[Line]:
    """Yield what was done, step by step, and what was not and why; then the verdict, or what to run again."""
    for component, change in done.changes:
        for number, line in enumerate(block(change.text)):
            yield f"{'' if number else component:{_COMPONENT_WIDTH}}  ", Styled(line, whole=True)
    if done.changes:
        yield ""
    yield from section("Not served", _refusals(done.desired))
    yield from _errors(done.errors)
    if done.errors:
        failed = ", ".join(TITLES[name] for name in done.errors)
        verdict = f"not everything was done: fix what failed ({failed}), then run {command} again"
    elif done.desired.undetermined:
        verdict = f"could not determine what else needs to be done: {_unusable(done.desired.undetermined)}"
    yield f"node {node_name}: {verdict}"


def _refusals(desired: Desired) -> Iterator[Line]:
    """Yield what an administrator should check: rejected load balancers and hostnames, unusable objects."""
    for decision in desired.load_balancers:
        if decision.status is DecisionStatus.REFUSED:
            yield from _load_balancer_lines(_load_balancer(decision, desired))
    yield from (_name_line(_name(name)) for name in desired.names if name.status is DecisionStatus.REFUSED)
    yield from map(_unreadable_line, desired.unreadable)


def _decisions(
    load_balancers: Iterable[LoadBalancer],
    names: Iterable[Line],
    unreadable: Iterable[Unreadable],
    remarks: Iterable[str],
) -> Iterator[Line]:
    balancers = [line for balancer in load_balancers for line in _load_balancer_lines(balancer)]
    yield from section("Load balancers", balancers)
    yield from section("Names", names)
    yield from section("Not usable", map(_unreadable_line, unreadable))
    yield from section("Notes", remarks)


def _load_balancer_lines(balancer: LoadBalancer) -> Iterator[Line]:
    route = ", ".join(balancer.addresses) or "no address"
    if balancer.ports:
        route += f" -> {', '.join(balancer.relay_addresses)} port {', '.join(map(str, balancer.ports))}"
    # What nothing of exists yet is no fault of it.
    pending = balancer.listeners and all(
        not status.answers and status.redirected is not None and not status.redirected
        for status in balancer.listeners
    )
    word = _PENDING if pending else _status_word(balancer)
    yield word, f" {balancer.service.path}: {route}: {balancer.reason}{_code(balancer)}"
    yield from (f"         {remark}" for remark in balancer.remarks)
    for listener in () if pending else balancer.listeners or ():
        answers = Styled("answers") if listener.answers else Styled("does not answer", "red")
        redirected = "unknown" if listener.redirected is None else ", ".join(listener.redirected) or "nothing"
        backend = f", ingress controller {listener.backend}" if listener.backend else ""
        yield f"         relay {listener.relay} ", answers, f", redirected to it: {redirected}{backend}"


def _name_line(hostname: Name, *, written: bool = False) -> Line:
    """Return the decision, and if `written`, whether a served hostname is in the hosts file now."""
    mark = ""
    word = _status_word(hostname)
    if written and hostname.status == "served":
        mark = {True: " [written]", False: "", None: " [unknown]"}[hostname.written]
        word = _PENDING if hostname.written is False else word
    line = f" {shown_name(hostname.name)}{mark} ({hostname.claimed_by}): {hostname.reason}{_code(hostname)}"
    return word, line


def _status_word(decision: LoadBalancer | Name) -> Styled:
    return Styled(f"{decision.status:8}", _COLOURS[decision.status])


def _code(decision: LoadBalancer | Name) -> str:
    """Return the code of what is not served, by which docs/reasons.md explains it."""
    return "" if decision.status == "served" else f" [{decision.code}]"


def _unreadable_line(entry: Unreadable) -> str:
    return f"{entry.where}: {entry.reason}"


def _change(name: ComponentName, change: ComponentChange) -> Iterator[Line]:
    title = f"{TITLES[name]} ({change.how})" if change.how else TITLES[name]
    # Of a whole table, what differs; the JSON has all of it.
    preview = "\n".join((*change.add, *change.remove)) if name == "dnat" else change.preview
    yield from section(title, map(_coloured, block(preview)))


def _coloured(line: str) -> Styled:
    return Styled(line, {"+": "green", "-": "red", "!": "yellow"}.get(line[:1]), whole=True)


def _errors(errors: Mapping[ComponentName, str]) -> Iterator[Line]:
    for component, error in errors.items():
        yield from section(Styled(f"{TITLES[component]} failed", "red", bold=True), block(error))


def _conclusion(document: Document, advice: str, elsewhere: str) -> str:
    """Return what is to do; if input is missing, without the advice to do it. `elsewhere` as above."""
    where = f"; {elsewhere}" if elsewhere else ""
    pending = ", ".join(TITLES[name] for name in _pending(document))
    failed = [TITLES[name] for name in document.errors]
    decisive = tuple(entry for entry in document.unreadable if entry.decisive)
    failed += [_unusable(decisive)] if decisive else []
    if failed:
        changes = f"; to change: {pending}" if pending else ""
        return f"could not determine: {', '.join(failed)}{changes}{where}"
    if pending:
        return f"to change: {pending}; {advice}{where}"
    return f"nothing to do here{where}" if elsewhere else "in sync, nothing to do"


def _unusable(unreadable: tuple[Unreadable, ...]) -> str:
    count = len(unreadable)
    return f"{count} object{'s are' if count > 1 else ' is'} not usable"
