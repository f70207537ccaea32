"""Which of the hostnames that the plan serves one CoreDNS answers, and why not the others. Pure.

The API rejects a ConfigMap that grows past its limit: nothing could be written any more, and names that were
withdrawn would stay. So the block has a limit, and each namespace a fair share of it: one that claims more
loses its own names, not those of others.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from types import MappingProxyType

from msgspec import Struct

from nodeagent.coredns.managed_block import OwnLine, own_names
from nodeagent.coredns.parsing import Corefile
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.desired import Desired, NameDecision, Verdict, skipped
from nodeagent.model.objects import ObjectRef
from nodeagent.plan.hostnames import covering, is_wildcard
from nodeagent.plan.precedence import Age


def any_of(labels: Iterable[str]) -> str:
    """Match exactly the given labels."""
    found = sorted(labels)
    return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"


def any_but(labels: Iterable[str]) -> str:
    """Match every label but the given ones: all that leave their tree of letters, or end early in it."""
    excluded = sorted(set(labels))
    return _other_than(["", *excluded]) if excluded else "[^.]+"


def _other_than(words: list[str]) -> str:
    """Match all texts without a dot except `words` (sorted); the empty one too, if it is not among them."""
    rests: dict[str, list[str]] = {}
    for word in words:
        if word:
            rests.setdefault(word[0], []).append(word[1:])
    if not rests:
        return "[^.]+"
    # A hyphen means itself only at the end of a class.
    heads = "".join(sorted(rests, key=lambda head: (head == "-", head)))
    ways = [f"[^.{heads}][^.]*", *(head + _other_than(rest) for head, rest in rests.items())]
    return f"(?:{'|'.join(ways)}){'' if '' in words else '?'}"


TTL = 30
"""Seconds: CoreDNS's own cache keeps answers as long by default, so a wrong one lasts no longer."""

_NAMES_A_LINE = 50
"""Names in one expression: the measurements show no gain above, and a person can still read such a line."""
_NO_RECORDS = (
    f"{{{{ .Name }}}} {TTL} IN SOA ns.nodeagent.invalid. nodeagent.invalid. 1 {TTL} {TTL} {TTL} {TTL}"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A name and the addresses it is answered with.

    A wildcard (`*.example.com`) matches one label; `but` are the labels it does not match, since others
    answer those names.
    """

    name: str
    addresses: tuple[IPAddress, ...]
    but: frozenset[str] = frozenset()

    @property
    def is_wildcard(self) -> bool:
        """Whether it matches more than one name."""
        return self.name.startswith("*.")


def by_templates(answers: Iterable[Answer]) -> list[str]:
    """Return the lines of the templates, in a fixed order, four spaces per level.

    Why `template` (docs/decisions/0015-coredns.md has the measurements): it works next to a `hosts` plugin,
    of which a server block takes only one; it leaves other record types (MX, TXT, CAA) to other plugins; and
    with many names in one regular expression it is fast.

    - A name has an answer for A and for AAAA, even an empty one (NOERROR with an SOA, RFC 2308), and an empty
      one for HTTPS (RFC 9460), whose address hints would bypass the relay.
    - Every expression is anchored at both ends; every template ends in `fallthrough`: other names pass to the
      next plugin.
    - The first template that matches answers, so exact names come before wildcards.
    - The zones after class and type are tried first, one after the other, so they are few: top-level domains.
    """
    groups: dict[tuple[bool, tuple[IPAddress, ...]], list[Answer]] = {}
    for answer in sorted(answers, key=lambda answer: answer.name):
        addresses = tuple(sorted(answer.addresses, key=sort_key))
        groups.setdefault((answer.is_wildcard, addresses), []).append(answer)
    lines: list[str] = []
    for (is_wild, addresses), found in sorted(
        groups.items(), key=lambda group: (group[0][0], group[1][0].name)
    ):
        names = [one.name for one in found]
        wildcards = [_below(any_but(one.but), one.name.removeprefix("*.")) for one in found if is_wild]
        expressions = wildcards or list(_expressions(names))
        for kind in ("A", "AAAA", "HTTPS"):
            lines += _template(kind, addresses, expressions, names)
    return lines


def by_rewriting(answers: Iterable[Answer], service: str) -> list[str]:
    """Return the lines that rewrite exact names to a Service's name in the cluster; wildcards stay templates.

    A rewritten query is answered in full by the Service's name, and the answer has the name of the query
    (CoreDNS itself does that for an exact name).
    """
    found = sorted(answers, key=lambda answer: answer.name)
    exact = [answer.name for answer in found if not answer.is_wildcard]
    return [
        *(f"rewrite stop name exact {name} {service}" for name in exact),
        *by_templates(answer for answer in found if answer.is_wildcard),
    ]


def _template(
    kind: str, addresses: tuple[IPAddress, ...], expressions: list[str], names: list[str]
) -> Iterator[str]:
    version = {"A": 4, "AAAA": 6}.get(kind)
    records = [address for address in addresses if address.version == version]
    zones = sorted({name.rpartition(".")[2] for name in names})
    yield f"template IN {kind} {' '.join(zones)} {{"
    yield from (f"    match {expression}" for expression in expressions)
    yield from (f'    answer "{{{{ .Name }}}} {TTL} IN {kind} {address}"' for address in records)
    if not records:
        # With an SOA, resolvers may cache the answer; and older CoreDNS rejects a template without records.
        yield f'    authority "{_NO_RECORDS}"'
    yield "    fallthrough"
    yield "}"


def _expressions(names: list[str]) -> Iterator[str]:
    """One expression for a limited number of names of one parent domain."""
    children: dict[str, list[str]] = {}
    for name in names:
        label, _, parent = name.partition(".")
        children.setdefault(parent, []).append(label)
    for parent, labels in sorted(children.items()):
        for first in range(0, len(labels), _NAMES_A_LINE):
            yield _below(any_of(labels[first : first + _NAMES_A_LINE]), parent)


def _below(label: str, parent: str) -> str:
    labels = [label, *parent.split(".")] if parent else [label]
    return f"^{'[.]'.join(labels)}[.]$"


CONFIG_MAP_BYTES = 1024 * 1024
"""The API's limit for the data of a ConfigMap (k8s.io/kubernetes, validation.MaxSecretSize)."""

CODE = "BlockFull"


class Source(Struct, frozen=True):
    """A Corefile (or a file that it imports) without nodeagent's own block, and its name for a person."""

    corefile: Corefile
    where: str = "the Corefile"


class Naming(Struct, frozen=True):
    """The answers, and the plan's decisions, changed where the Corefile itself decides."""

    answers: tuple[Answer, ...]
    decisions: tuple[NameDecision, ...]


Ages = Mapping[ObjectRef, Age]
"""How old the objects are that claim hostnames."""

_FOR_ALL = frozenset({"Excluded", "HairpinProxyLine", "NeverWritten", "ServerBlock", "UserLine"})
"""Codes of hostnames that are not answered independent of who claims them: the administrator names them."""

_LETTERS = 2000
"""Of the labels that a wildcard leaves to other claims: each letter takes 16 bytes in three expressions."""

_LABEL = re.compile("[a-z0-9_-]{1,63}")
"""What expressions may contain. Custom kinds hold any text; no program looks up a name with other labels."""


def name(
    desired: Desired,
    sources: Sequence[Source],
    *,
    never: Iterable[str],
    adopt: bool,
    ages: Ages = MappingProxyType({}),
) -> Naming:
    """Decide for one CoreDNS.

    Args:
        desired: The plan, wildcards included.
        sources: The Corefile, and the files that it imports as far as they are known.
        never: Names that are never answered; the planner left them out, and no wildcard may match them.
        adopt: Whether hairpin-proxy's lines give way.
        ages: If unknown, a claim counts as older than any wildcard's.
    """
    lines: dict[str, OwnLine] = {}
    for source in sources:
        lines = own_names(source.corefile, source.where) | lines
    if adopt:
        lines = {name: line for name, line in lines.items() if not line.by_hairpin_proxy}
    decisions = tuple(_decided(decision, sources, lines) for decision in desired.names)
    served = {decision.name for decision in decisions if decision.verdict is Verdict.SERVED}
    # Names that others answer, or that must have no answer: a wildcard must not match them.
    foreign = by_parent((set(lines) | set(never)) - served)
    unserved: dict[str, list[NameDecision]] = {}
    for decision in decisions:
        if decision.name not in served:
            unserved.setdefault(decision.name.partition(".")[2], []).append(decision)
    addresses: dict[str, list[IPAddress]] = {}
    for line in desired.hosts:
        if line.name in served:
            addresses.setdefault(line.name, []).append(line.address)
    claimants = {each.name: each.claimed_by for each in reversed(decisions) if is_wildcard(each.name)}

    def but(name: str) -> frozenset[str]:
        if not is_wildcard(name):
            return frozenset()
        parent = name.removeprefix("*.")
        claimed = _claimed_by_others(unserved.get(parent, ()), claimants[name], ages)
        return labels_of(foreign.get(parent, ())) | labels_of(claimed)

    return Naming(
        tuple(Answer(name, tuple(found), but(name)) for name, found in sorted(addresses.items())), decisions
    )


def _claimed_by_others(unserved: Iterable[NameDecision], wildcard: ObjectRef, ages: Ages) -> Iterator[str]:
    """Yield the hostnames that are not answered, and that the claim of a wildcard does not cover either.

    As of two claims to one hostname, the older one counts, unless they are of one namespace: no object that
    is created later can take a hostname out of a wildcard of others. Namespaces take turns, with equal
    numbers of letters.
    """
    claims: dict[str, list[tuple[Age | tuple[()], str]]] = {}
    mine = ages.get(wildcard)
    for each in unserved:
        namespace, age = each.claimed_by.namespace, ages.get(each.claimed_by)
        if each.code in _FOR_ALL:
            yield each.name
        elif namespace == wildcard.namespace or (
            each.code != "ExcludedByAnnotation" and (mine is None or age is None or age < mine)
        ):
            claims.setdefault(namespace, []).append((age or (), each.name))
    yield from _few(
        _turns({namespace: [name for _, name in sorted(found)] for namespace, found in claims.items()})
    )


def _few(names: Iterable[str]) -> Iterator[str]:
    """Yield the first names, as many as an expression may leave out."""
    letters = 0
    for name in names:
        letters += len(name.partition(".")[0])
        if letters > _LETTERS:
            return
        yield name


def _turns(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the names of all namespaces, which take turns, with equal numbers of letters."""
    turns: list[tuple[int, str, str]] = []
    for namespace, found in names.items():
        turns += zip(accumulate(map(len, found)), repeat(namespace), found)
    return (name for _, _, name in sorted(turns))


def _decided(decision: NameDecision, sources: Sequence[Source], lines: Mapping[str, OwnLine]) -> NameDecision:
    if decision.verdict is not Verdict.SERVED:
        return decision
    line = lines.get(decision.name)
    if line is not None and line.by_hairpin_proxy:
        reason = f"left to hairpin-proxy's {line.where}: --adopt takes it over"
        return left(decision, "HairpinProxyLine", reason)
    if line is not None:
        return left(decision, "UserLine", f"left to {line.where}, which sets it ({line.plugin})")
    for source in sources:
        for server in source.corefile.servers:
            if covering(decision.name.removeprefix("*."), server.zones):  # CoreDNS hands it the name
                where = f"the server block {server} of {source.where}"
                return left(decision, "ServerBlock", f"left to {where}, which serves all names of its zone")
    return decision


def left(decision: NameDecision, code: str, reason: str) -> NameDecision:
    """Return the decision, changed into one that skips the name."""
    return replace(decision, ruling=skipped(code, reason))


def by_parent(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the names by what follows their first label."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition(".")[2], []).append(name)
    return found


def labels_of(names: Iterable[str]) -> frozenset[str]:
    """Return the first labels of names; a wildcard has none, and what is no label is left out."""
    return frozenset(label for label in (name.partition(".")[0] for name in names) if _LABEL.fullmatch(label))


def fit(
    naming: Naming, standing: Iterable[str], size: Callable[[Sequence[Answer]], int], most: int
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
    counts = range(1, len(ordered) + 1)
    chosen = ordered[: bisect_right(counts, room, key=lambda n: size(_only(naming.answers, ordered[:n])))]
    # The size of each wildcard alone: together, they take no more than the sum, and there can be thousands.
    rest = most - size(_only(naming.answers, chosen))
    narrowed = {answer.name: answer for answer in _only(naming.answers, [*chosen, *wildcards])}
    for wildcard in wildcards:
        takes = size((narrowed[wildcard],))
        if takes <= rest:
            chosen.append(wildcard)
            rest -= takes
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
    """Return the exact names, or the wildcards; the namespaces take turns, with equal numbers of bytes."""
    owners: dict[str, str] = {}
    for decision in naming.decisions:
        if decision.verdict is Verdict.SERVED:
            owners.setdefault(decision.name, decision.claimed_by.namespace)
    found: dict[str, list[str]] = {}
    for answer in naming.answers:
        if answer.is_wildcard == wildcards:
            found.setdefault(owners.get(answer.name, ""), []).append(answer.name)
    for names in found.values():
        names.sort(key=lambda name: (name not in standing, name))
    return _turns(found)


def _only(answers: Sequence[Answer], names: Iterable[str]) -> tuple[Answer, ...]:
    """Return only those answers. No wildcard matches a left-out name, unless the addresses are the same."""
    wanted = frozenset(names)
    without: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.name not in wanted:
            without.setdefault(answer.name.partition(".")[2], []).append(answer)

    def narrowed(answer: Answer) -> Answer:
        if not answer.is_wildcard:
            return answer
        others = without.get(answer.name.removeprefix("*."), ())
        unlike = (other.name for other in others if other.addresses != answer.addresses)
        return replace(answer, but=answer.but | labels_of(_few(unlike)))

    return tuple(narrowed(answer) for answer in answers if answer.name in wanted)
