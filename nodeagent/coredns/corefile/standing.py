"""The names that our block answers as it stands: the memory of what was proven, while DNS can't be asked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from nodeagent.coredns.corefile.managed import blocks_of
from nodeagent.coredns.corefile.parsing import Directive, parse
from nodeagent.model.addresses import IPAddress


@dataclass(frozen=True, slots=True)
class StandingNames:
    """The names with their addresses, and those that are rewritten to a relay Service."""

    answered: dict[str, frozenset[IPAddress]] = field(default_factory=dict)
    rewritten: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """The names of both kinds."""
        return self.rewritten | self.answered.keys()


def standing_names(texts: Iterable[str]) -> StandingNames:
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
    return StandingNames(answered, frozenset(rewritten))


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
