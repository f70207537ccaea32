"""Which names a Corefile has answers for: the user's own lines, and nodeagent's block. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from msgspec import Struct

from nodeagent.coredns.corefile.managed_block import blocks_of
from nodeagent.coredns.corefile.parsing import Corefile, Directive, Token, parse
from nodeagent.model.addresses import IPAddress
from nodeagent.plan.hostnames import canonical

HAIRPIN_PROXY = "# Added by hairpin-proxy"
"""How every line ends that hairpin-proxy's controller writes."""


class OwnLine(Struct, frozen=True):
    """A line that sets a name: where it stands, its plugin, and whether hairpin-proxy wrote it."""

    where: str
    plugin: str
    by_hairpin_proxy: bool = False


def own_names(corefile: Corefile, where: str) -> dict[str, OwnLine]:
    """The names that `rewrite name` and inline `hosts` lines of the root server blocks set, exact names only.

    The Corefile must be without our own block; `where` is what a person knows it by. What a rewrite by
    pattern, or a file, means for names can't be told here.
    """
    by_hairpin_proxy = {
        comment.line for comment in corefile.comments if comment.text.rstrip().endswith(HAIRPIN_PROXY)
    }
    found: dict[str, OwnLine] = {}
    for root in corefile.roots:
        for directive in corefile.plugins(root):
            for token in _names(directive):
                line = OwnLine(
                    f"line {token.line} of {where}", directive.name, token.line in by_hairpin_proxy
                )
                found.setdefault(canonical(token.text), line)
    return found


def without_hairpin_proxy(text: str) -> str:
    """The text without the lines that hairpin-proxy wrote; every other byte stays."""
    return "".join(line for line in text.splitlines(keepends=True) if not _is_hairpin_proxys(line))


def _is_hairpin_proxys(line: str) -> bool:
    bare = line.strip()
    return bare.startswith("rewrite ") and bare.endswith(HAIRPIN_PROXY)


def _names(directive: Directive) -> Iterator[Token]:
    if directive.name == "hosts":
        for line in directive.lines()[1:]:
            # An address and its names; the rest are options (ttl, no_reverse, reload, fallthrough).
            if line[0].text[:1].isdigit() or ":" in line[0].text:
                yield from line[1:]
    elif directive.name == "rewrite":
        yield from _rewritten(directive.lines()[0][1:])


def _rewritten(words: list[Token]) -> Iterator[Token]:
    """The name that `rewrite [continue|stop] name [exact] FROM TO` is about."""
    rest = words[1:] if words and words[0].text in {"continue", "stop"} else words
    if not rest or rest[0].text != "name":
        return
    rest = rest[1:]
    if rest and rest[0].text == "exact":
        rest = rest[1:]
    elif rest and rest[0].text in {"prefix", "suffix", "substring", "regex"}:
        return
    if len(rest) >= 2:
        yield rest[0]


# The names that our block answers as it stands: the memory of what was proven, while DNS can't be asked.


@dataclass(frozen=True, slots=True)
class BlockNames:
    """The names with their addresses, and those that are rewritten to a relay Service."""

    answered: dict[str, frozenset[IPAddress]] = field(default_factory=dict)
    rewritten: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """The names of both kinds."""
        return self.rewritten | self.answered.keys()


def block_names(texts: Iterable[str]) -> BlockNames:
    """Reads the blocks in Corefiles, and in files that they import.

    Raises:
        CorefileError: a marker has lost its twin, or a block can't be read.
    """
    answered: dict[str, frozenset[IPAddress]] = {}
    rewritten: set[str] = set()
    for text in texts:
        for block in blocks_of(text):
            (server,) = parse(f". {{\n{block}\n}}").servers
            for directive in server.directives:
                if directive.name == "rewrite":
                    rewritten.add(directive.arguments[3])
                else:
                    for name, addresses in _of_template(directive):
                        answered[name] = answered.get(name, frozenset()) | addresses
    return BlockNames(answered, frozenset(rewritten))


def _of_template(directive: Directive) -> Iterator[tuple[str, frozenset[IPAddress]]]:
    lines = [[token.text for token in line] for line in directive.lines()[1:]]
    answers = (line[1].split() for line in lines if line[0] == "answer")
    addresses = frozenset(ip_address(answer[-1]) for answer in answers)
    for line in lines:
        if line[0] == "match" and addresses:
            yield from ((name, addresses) for name in _matched(line[1]))


def _matched(expression: str) -> Iterator[str]:
    """The names of an expression as answering.py writes it; of a wildcard's, the wildcard."""
    label, *parents = expression.removeprefix("^").removesuffix("[.]$").split("[.]")
    labels = ["*"] if "[^" in label else label.removeprefix("(?:").removesuffix(")").split("|")
    yield from (".".join([one, *parents]) for one in labels)
