"""Which of the names that the plan serves one CoreDNS answers, and why not the others. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeagent.coredns.corefile.answering import Answer
from nodeagent.coredns.corefile.own_lines import OwnLine, own_names
from nodeagent.coredns.corefile.parsing import Corefile
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, NameDecision, Verdict
from nodeagent.plan.hostnames import covering, is_wildcard


@dataclass(frozen=True, slots=True)
class Source:
    """A Corefile (or a file that it imports) without our own block, and what a person knows it by."""

    corefile: Corefile
    where: str = "the Corefile"


@dataclass(frozen=True, slots=True)
class Naming:
    """What is answered, and the plan's decisions, changed where the Corefile itself has the last word."""

    answers: tuple[Answer, ...]
    decisions: tuple[NameDecision, ...]


def name(desired: Desired, sources: Sequence[Source], *, never: Iterable[str], adopt: bool) -> Naming:
    """Decides for one CoreDNS.

    Args:
        desired: The plan, wildcards included.
        sources: The Corefile, and the files that it imports as far as they are known.
        never: Names that are never answered; the planner left them out, and no wildcard may stand for them.
        adopt: Whether hairpin-proxy's lines give way.
    """
    lines: dict[str, OwnLine] = {}
    for source in sources:
        lines = own_names(source.corefile, source.where) | lines
    if adopt:
        lines = {name: line for name, line in lines.items() if not line.by_hairpin_proxy}
    decisions = tuple(_decided(decision, sources, lines) for decision in desired.names)
    served = {decision.name for decision in decisions if decision.verdict is Verdict.SERVED}
    # What somebody else answers, or nobody shall: a wildcard must not.
    foreign = ({decision.name for decision in decisions} | set(lines) | set(never)) - served
    addresses: dict[str, list[IPAddress]] = {}
    for line in desired.hosts:
        if line.name in served:
            addresses.setdefault(line.name, []).append(line.address)
    return Naming(
        tuple(
            Answer(name, tuple(found), children(foreign, name) if is_wildcard(name) else frozenset())
            for name, found in sorted(addresses.items())
        ),
        decisions,
    )


def _decided(decision: NameDecision, sources: Sequence[Source], lines: Mapping[str, OwnLine]) -> NameDecision:
    if decision.verdict is not Verdict.SERVED:
        return decision
    line = lines.get(decision.name)
    if line is not None and line.by_hairpin_proxy:
        reason = f"left to hairpin-proxy's {line.where}: --adopt takes it over"
        return left(decision, "HairpinProxyLine", reason)
    if line is not None:
        return left(decision, "UserLine", f"left to {line.where}, which sets it ({line.plugin})")
    server = _closer(decision.name, sources)
    if server is not None:
        return left(decision, "ServerBlock", f"left to {server}, which has all names of its zone")
    return decision


def left(decision: NameDecision, code: str, reason: str) -> NameDecision:
    """The decision turned into one that leaves the name alone."""
    return replace(decision, verdict=Verdict.SKIPPED, code=code, reason=reason)


def _closer(name: str, sources: Sequence[Source]) -> str | None:
    """The server block of a zone below `.` that CoreDNS hands the name to, for a person."""
    bare = name.removeprefix("*.")
    for source in sources:
        for server in source.corefile.servers:
            if covering(bare, server.zones):
                return f"the server block {server} of {source.where}"
    return None


def children(names: Iterable[str], wildcard: str) -> frozenset[str]:
    """The labels of those of the names that the wildcard would stand for."""
    below = wildcard.removeprefix("*")
    labels = (name.removesuffix(below) for name in names if name.endswith(below))
    return frozenset(label for label in labels if label and "." not in label and label != "*")
