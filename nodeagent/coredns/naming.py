"""Which of the hostnames that the plan serves one CoreDNS answers, and why not the others. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, repeat

from msgspec import Struct

from nodeagent.coredns.corefile.answering import Answer
from nodeagent.coredns.corefile.managed_block import OwnLine, own_names
from nodeagent.coredns.corefile.parsing import Corefile
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, NameDecision, Verdict
from nodeagent.plan.hostnames import covering, is_wildcard


class Source(Struct, frozen=True):
    """A Corefile (or a file that it imports) without nodeagent's own block, and its name for a person."""

    corefile: Corefile
    where: str = "the Corefile"


class Naming(Struct, frozen=True):
    """The answers, and the plan's decisions, changed where the Corefile itself decides."""

    answers: tuple[Answer, ...]
    decisions: tuple[NameDecision, ...]


def name(desired: Desired, sources: Sequence[Source], *, never: Iterable[str], adopt: bool) -> Naming:
    """Decide for one CoreDNS.

    Args:
        desired: The plan, wildcards included.
        sources: The Corefile, and the files that it imports as far as they are known.
        never: Names that are never answered; the planner left them out, and no wildcard may match them.
        adopt: Whether hairpin-proxy's lines give way.
    """
    lines: dict[str, OwnLine] = {}
    for source in sources:
        lines = own_names(source.corefile, source.where) | lines
    if adopt:
        lines = {name: line for name, line in lines.items() if not line.by_hairpin_proxy}
    decisions = tuple(_decided(decision, sources, lines) for decision in desired.names)
    served = {decision.name for decision in decisions if decision.verdict is Verdict.SERVED}
    # Names that others answer, or that must have no answer: a wildcard must not match them.
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
        return left(decision, "ServerBlock", f"left to {server}, which serves all names of its zone")
    return decision


def left(decision: NameDecision, code: str, reason: str) -> NameDecision:
    """Return the decision, changed into one that skips the name."""
    return replace(decision, verdict=Verdict.SKIPPED, code=code, reason=reason)


def _closer(name: str, sources: Sequence[Source]) -> str | None:
    """Return the server block of a zone below `.` to which CoreDNS hands the name, for a person."""
    bare = name.removeprefix("*.")
    for source in sources:
        for server in source.corefile.servers:
            if covering(bare, server.zones):
                return f"the server block {server} of {source.where}"
    return None


def children(names: Iterable[str], wildcard: str) -> frozenset[str]:
    """Return the labels of the names that the wildcard would match."""
    below = wildcard.removeprefix("*")
    labels = (name.removesuffix(below) for name in names if name.endswith(below))
    return frozenset(label for label in labels if label and "." not in label and label != "*")


# Which names the block has room for: the API rejects a ConfigMap that grows past its limit. Pure.
# The API server accepts 1 MiB of a ConfigMap's data. If the block grew beyond, nothing could be written any
# more, and names that were withdrawn would stay. So the block has a limit, and each namespace a fair share of
# it: a namespace that claims more than that loses its own names, not those of others.


CONFIG_MAP_BYTES = 1024 * 1024
"""The API's limit for the data of a ConfigMap (k8s.io/kubernetes, validation.MaxSecretSize)."""

CODE = "BlockFull"


def fit(
    naming: Naming,
    standing: Iterable[str],
    size: Callable[[Sequence[Answer]], int],
    most: int,
) -> Naming:
    """Return as much of `naming` as has room; the rest is skipped with the code BlockFull.

    Args:
        naming: All desired answers.
        standing: The names that the block answers now: of a namespace's own names, these come first.
        size: The bytes of a block with these answers.
        most: The bytes for which there is room; below 0 counts as 0.
    """
    if size(naming.answers) <= most:
        return naming
    standing = frozenset(standing)
    ordered = list(_in_turn(naming, standing, wildcards=False))
    wildcards = list(_in_turn(naming, standing, wildcards=True))
    # A wildcard is as large as the list of names that it does not match: it must not push out the rest.
    room = most * 3 // 4 if wildcards else most
    fits, beyond = 0, len(ordered) + 1
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if size(_only(naming.answers, ordered[:middle])) <= room:
            fits = middle
        else:
            beyond = middle
    chosen = ordered[:fits]
    for wildcard in wildcards:
        if size(_only(naming.answers, [*chosen, wildcard])) <= most:
            chosen.append(wildcard)
    kept = _only(naming.answers, chosen)
    names = {answer.name for answer in kept}
    reason = (
        f"no room: nodeagent's block may have {max(most, 0)} bytes (coredns.maxBytes, and the API's limit "
        "for a ConfigMap), of which each namespace has its share"
    )
    decisions = tuple(
        left(decision, CODE, reason)
        if decision.verdict is Verdict.SERVED and decision.name not in names
        else decision
        for decision in naming.decisions
    )
    return Naming(kept, decisions)


def _in_turn(naming: Naming, standing: frozenset[str], *, wildcards: bool) -> Iterator[str]:
    """Return the exact names, or the wildcards.

    The namespaces take turns, with equal numbers of bytes.
    """
    owners: dict[str, str] = {}
    for decision in naming.decisions:
        if decision.verdict is Verdict.SERVED:
            owners.setdefault(decision.name, decision.claimed_by.namespace)
    found: dict[str, list[str]] = {}
    for answer in naming.answers:
        if answer.is_wildcard == wildcards:
            found.setdefault(owners.get(answer.name, ""), []).append(answer.name)
    turns: list[tuple[int, str, str]] = []
    for namespace, names in found.items():
        names.sort(key=lambda name: (name not in standing, name))
        turns += zip(accumulate(map(len, names)), repeat(namespace), names)
    return (name for _, _, name in sorted(turns))


def _only(answers: Sequence[Answer], names: Iterable[str]) -> tuple[Answer, ...]:
    """Return only those answers. No wildcard matches a left-out name, unless the addresses are the same."""
    wanted = frozenset(names)
    kept = [answer for answer in answers if answer.name in wanted]
    without: Mapping[str, Answer] = {answer.name: answer for answer in answers if answer.name not in wanted}

    def narrowed(answer: Answer) -> Answer:
        if not answer.is_wildcard:
            return answer
        others = (name for name, other in without.items() if other.addresses != answer.addresses)
        return replace(answer, but=answer.but | children(others, answer.name))

    return tuple(narrowed(answer) for answer in kept)
