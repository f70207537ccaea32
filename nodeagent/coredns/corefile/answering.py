"""The lines by which CoreDNS answers names with addresses: `template`, or `rewrite` to a relay Service.

Why `template` (docs/decisions/0015-coredns.md has the measurements): it works next to a `hosts` plugin, of
which a server block takes only one; it leaves other record types (MX, TXT, CAA) to other plugins; and with
many names in one regular expression it is fast.

- A name has an answer for A and for AAAA, even an empty one (NOERROR with an SOA, RFC 2308), and an empty one
  for HTTPS (RFC 9460), whose address hints would bypass the relay.
- Every expression is anchored at both ends; every template ends in `fallthrough`: other names pass to the
  next plugin.
- The first template that matches answers, so exact names come before wildcards.
- The zones after class and type are tried first, one after the other, so they are few: top-level domains.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodeagent.model.addresses import IPAddress, sort_key


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
    """Return the lines of the templates, in a fixed order, four spaces per level."""
    exact: dict[tuple[IPAddress, ...], list[str]] = {}
    wild: dict[tuple[IPAddress, ...], list[Answer]] = {}
    for answer in sorted(answers, key=lambda answer: answer.name):
        addresses = tuple(sorted(answer.addresses, key=sort_key))
        if answer.is_wildcard:
            wild.setdefault(addresses, []).append(answer)
        else:
            exact.setdefault(addresses, []).append(answer.name)
    groups = [
        *((addresses, list(_expressions(names)), names) for addresses, names in exact.items()),
        *(
            (addresses, [_wildcard(answer) for answer in found], [answer.name for answer in found])
            for addresses, found in wild.items()
        ),
    ]
    return [
        line
        for addresses, expressions, names in sorted(
            groups, key=lambda group: (group[2][0][:2] == "*.", group[2])
        )
        for kind in ("A", "AAAA", "HTTPS")
        for line in _template(kind, addresses, expressions, names)
    ]


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


def _wildcard(answer: Answer) -> str:
    return _below(any_but(answer.but), answer.name.removeprefix("*."))


def _below(label: str, parent: str) -> str:
    labels = [label, *parent.split(".")] if parent else [label]
    return f"^{'[.]'.join(labels)}[.]$"
