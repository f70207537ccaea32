"""Which of the hostnames that the plan serves one CoreDNS answers, and why not the others. Pure."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, repeat
from types import MappingProxyType

from msgspec import Struct

from nodeagent.coredns.managed_block import OwnLine, own_names
from nodeagent.coredns.parsing import Corefile
from nodeagent.model.addresses import IPAddress, covering, is_wildcard, sort_key
from nodeagent.model.desired import DecisionStatus, Desired, NameDecision, skipped
from nodeagent.model.objects import Age, ObjectRef

TTL = 30
"""Seconds: CoreDNS's own cache keeps answers as long by default, so a wrong one lasts no longer."""

_NAMES_A_LINE = 50
"""Names in one expression: the measurements show no gain above, and a person can still read such a line."""
_NO_RECORDS = (
    f"{{{{ .Name }}}} {TTL} IN SOA ns.nodeagent.invalid. nodeagent.invalid. 1 {TTL} {TTL} {TTL} {TTL}"
)


Answers = Mapping[str, Sequence[IPAddress]]
"""The addresses that each name is answered with. A wildcard (`*.example.com`) matches any one label."""


def by_templates(answers: Answers) -> list[str]:
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
    groups: dict[tuple[bool, tuple[IPAddress, ...]], list[str]] = {}
    for name, found in sorted(answers.items()):
        addresses = tuple(sorted(found, key=sort_key))
        groups.setdefault((is_wildcard(name), addresses), []).append(name)
    lines: list[str] = []
    for (_, addresses), names in sorted(groups.items(), key=lambda group: (group[0][0], group[1][0])):
        expressions = list(_expressions(names))
        for kind in ("A", "AAAA", "HTTPS"):
            lines += _template(kind, addresses, expressions, names)
    return lines


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
        children.setdefault(parent, []).append("[^.]+" if label == "*" else label)
    for parent, labels in sorted(children.items()):
        for first in range(0, len(labels), _NAMES_A_LINE):
            some = labels[first : first + _NAMES_A_LINE]
            label = some[0] if len(some) == 1 else f"(?:{'|'.join(some)})"
            yield f"^{'[.]'.join([label, *filter(None, parent.split('.'))])}[.]$"


CONFIG_MAP_BYTES = 1024 * 1024
"""The API's limit for the data of a ConfigMap (k8s.io/kubernetes, validation.MaxSecretSize)."""

FULL = "BlockFull"
TOO_WIDE = "WildcardTooWide"


class Source(Struct, frozen=True):
    """A Corefile (or a file that it imports) without nodeagent's own block, and its name for a person."""

    corefile: Corefile
    where: str = "the Corefile"


Ages = Mapping[ObjectRef, Age]
"""How old the objects are that claim hostnames."""

_LABEL = re.compile("[a-z0-9_-]{1,63}")
"""Custom kinds hold any text; no program looks up a hostname with other labels."""


def name(  # noqa: PLR0913 - what a CoreDNS answers depends on
    desired: Desired,
    sources: Sequence[Source],
    fits: Callable[[Answers], bool],
    *,
    standing: Iterable[str] = (),
    never: Mapping[str, str] = MappingProxyType({}),
    adopt: bool = False,
    ages: Ages = MappingProxyType({}),
) -> tuple[Answers, tuple[NameDecision, ...]]:
    """Decide for one CoreDNS.

    Args:
        desired: The plan, wildcards included.
        sources: The Corefile, and the files that it imports as far as they are known.
        fits: Whether there is room for these answers.
        standing: The names that are answered now: of a namespace's own names, these come first.
        never: Names that are never answered, and why. The planner left them out; no wildcard may match them.
        adopt: Whether hairpin-proxy's lines give way.
        ages: If unknown, a claim counts as older than any wildcard's.

    Returns:
        The answers; and the plan's decisions, changed where the Corefile itself decides.
    """
    lines: dict[str, OwnLine] = {}
    for source in sources:
        lines = own_names(source.corefile, source.where) | lines
    if adopt:
        lines = {name: line for name, line in lines.items() if not line.by_hairpin_proxy}
    addresses: dict[str, list[IPAddress]] = {}
    for line in desired.hosts:
        addresses.setdefault(line.name, []).append(line.address)
    decisions = tuple(_decided(decision, sources, lines) for decision in desired.names)
    beyond = _beyond_room(_answered(addresses, decisions), decisions, frozenset(standing), fits)
    decisions = _skipping(decisions, beyond, FULL)
    elsewhere = {name: f"{line.where} sets" for name, line in lines.items()} | dict(never)
    decisions = _skipping(decisions, _too_wide(decisions, elsewhere, ages), TOO_WIDE)
    return _answered(addresses, decisions), decisions


def _answered(addresses: Answers, decisions: Iterable[NameDecision]) -> Answers:
    served = {each.name for each in decisions if each.status is DecisionStatus.SERVED}
    return {name: found for name, found in addresses.items() if name in served}


def _decided(decision: NameDecision, sources: Sequence[Source], lines: Mapping[str, OwnLine]) -> NameDecision:
    if decision.status is not DecisionStatus.SERVED:
        return decision
    line = lines.get(decision.name)
    if line is not None and line.by_hairpin_proxy:
        reason = f"left to hairpin-proxy's {line.where}: --adopt takes it over"
        return replace(decision, conclusion=skipped("HairpinProxyLine", reason))
    if line is not None:
        by = f"; {line.writer} wrote it: remove it there, or delete the line" if line.writer else ""
        reason = f"left to {line.where}, which sets it ({line.plugin}){by}"
        return replace(decision, conclusion=skipped("UserLine", reason))
    for source in sources:
        for server in source.corefile.servers:
            if covering(decision.name.removeprefix("*."), server.zones):  # CoreDNS hands it the name
                where = f"the server block {server} of {source.where}"
                reason = f"left to {where}, which serves all names of its zone"
                return replace(decision, conclusion=skipped("ServerBlock", reason))
    return decision


def _skipping(
    decisions: Iterable[NameDecision], left_out: Mapping[str, str], code: str
) -> tuple[NameDecision, ...]:
    """Return them without these names, each with the reason why it is skipped."""
    return tuple(
        replace(each, conclusion=skipped(code, left_out[each.name]))
        if each.status is DecisionStatus.SERVED and each.name in left_out
        else each
        for each in decisions
    )


def _beyond_room(
    answers: Answers,
    decisions: Iterable[NameDecision],
    standing: frozenset[str],
    fits: Callable[[Answers], bool],
) -> Mapping[str, str]:
    """Return the names that there is no room for. The namespaces take turns, with equal numbers of letters.

    The API rejects a ConfigMap that grows past its limit: nothing could be written any more, and names that
    were withdrawn would stay.
    """
    if fits(answers):
        return {}
    owners = {
        each.name: each.claimed_by.namespace for each in decisions if each.status is DecisionStatus.SERVED
    }
    shares: dict[str, list[str]] = {}
    for name in answers:
        shares.setdefault(owners[name], []).append(name)
    turns: list[tuple[int, str, str]] = []
    for namespace, names in shares.items():
        names.sort(key=lambda name: (name not in standing, name))
        turns += zip(accumulate(map(len, names)), repeat(namespace), names)
    ordered = [name for _, _, name in sorted(turns)]

    def is_too_much(count: int) -> bool:
        return not fits({name: answers[name] for name in ordered[:count]})

    room = bisect_right(range(1, len(ordered)), 0, key=is_too_much)
    reason = (
        "no room: nodeagent's block has a limit (coredns.maxBytes, and the API's limit for a ConfigMap), and "
        "each namespace its share of it"
    )
    return dict.fromkeys(ordered[room:], reason)


def _too_wide(
    decisions: Sequence[NameDecision], elsewhere: Mapping[str, str], ages: Ages
) -> Mapping[str, str]:
    """Return the wildcards that match a name for which their answer would be wrong, each with the reason.

    Such a name is set elsewhere, or is claimed and has no answer here: its address is another one. As of
    two claims to one hostname, the older one counts, unless they are of one namespace: no object that is
    created later takes a wildcard from others.
    """
    answered = {each.name for each in decisions if each.status is DecisionStatus.SERVED}
    claims: dict[str, list[NameDecision]] = {}
    for each in decisions:
        label, _, parent = each.name.partition(".")
        if each.name not in answered and each.code != "ServerBlock" and _LABEL.fullmatch(label):
            claims.setdefault(parent, []).append(each)
    foreign = {name.partition(".")[2]: f"{name}, which {why}" for name, why in elsewhere.items()}

    def matched(wildcard: NameDecision) -> Iterator[str]:
        by, parent = wildcard.claimed_by, wildcard.name.removeprefix("*.")
        if parent in foreign:
            yield foreign[parent]
        for each in claims.get(parent, ()):
            is_own = each.claimed_by.namespace == by.namespace
            is_older = by not in ages or each.claimed_by not in ages or ages[each.claimed_by] < ages[by]
            if is_own or (is_older and each.code != "ExcludedByAnnotation"):
                yield f"{each.name}, which {each.claimed_by} claims ({each.code})"

    return {
        each.name: f"CoreDNS would also answer {first} with its address; DNAT serves it where it sees pods"
        for each in decisions
        if is_wildcard(each.name)
        and each.status is DecisionStatus.SERVED
        and (first := next(matched(each), ""))
    }
