"""YAML as all of nodeagent reads it: manifests, the configuration, the kubelet's kubeconfigs.

It has JSON's types, and costs no more than its length: nine lines of aliases can be a gigabyte, and a line of
sexagesimal digits takes seconds. So it has no merge keys, tags or numbers of YAML 1.1, and few aliases.
"""

import math
import re
from typing import Any

import yaml

from nodeagent.errors import one_line, shortened

_DEEPEST = 100
"""The composer of libyaml is recursive, and ends the process if a document nests far deeper."""
_MOST_REPEATED = 1000
"""Nodes that all aliases of a document may repeat. kubectl writes none; other tools do, for equal labels."""
_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})$")
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?$")
LONGEST_PROBLEM = 380
_SAID_PLAINLY = {
    "mapping values are not allowed in this context": "a ': ' where no key can be: "
    "check the indentation, or put the text in quotes",
    "expected a single document in the stream but found another document": "a second document begins: "
    "leave one",
}


class _Loader(yaml.CSafeLoader):
    """A date, `<<` and `0x1F` are text as written; `yes` and `off` are booleans, as for kubectl."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class declares it so
        first: [(tag, pattern) for tag, pattern in resolvers if tag in {f"{_TAG}bool", f"{_TAG}null"}]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return what the text says; without fraction and exponent, an integer."""
        if _INTEGER.match(node.value):
            return int(node.value)
        if math.isinf(value := float(node.value)):
            raise yaml.MarkedYAMLError(problem="too large a number", problem_mark=node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Return what the mapping holds. Raises yaml.YAMLError if a key is in it twice: which is meant?"""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            seen: set[Any] = set()
            for key, _ in node.value:
                if (value := self.construct_object(key)) in seen:
                    problem = f"{key.value!r} is given twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(value)
        return mapping


_Loader.add_implicit_resolver(f"{_TAG}float", _NUMBER, list("-+0123456789"))
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_number)


def compose(text: str) -> yaml.Node | None:
    """Return a document's nodes, which know their lines; None if it has none. Raises yaml.YAMLError."""
    # The nodes so far, with aliases replaced, and those of aliases; by anchor, how many it has.
    count = repeated = 0
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.CollectionEndEvent():
                anchor, before = opened.pop()
                sizes[anchor] = count - before
            case yaml.AliasEvent():
                size = sizes.get(event.anchor, _MOST_REPEATED + 1)  # within its own anchor: too many
                repeated += size
                count += size
            case yaml.CollectionStartEvent():
                opened.append((event.anchor, count))
                count += 1
            case yaml.ScalarEvent():
                sizes[event.anchor] = 1
                count += 1
        problem = ""
        if repeated > _MOST_REPEATED:
            problem = "aliases (*) that repeat much, or themselves, are not supported: write them out"
        elif (getattr(event, "tag", None) or "!") != "!":
            problem = "tags (!) are not supported"
        elif len(opened) > _DEEPEST:
            problem = f"nested more than {_DEEPEST} deep"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
    return yaml.compose(text, Loader=_Loader)


def value_of(node: yaml.Node) -> Any:  # noqa: ANN401 - what YAML can hold
    """Return what a node holds. Raises yaml.YAMLError, also for a key that is a mapping."""
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def load(text: str) -> Any:  # noqa: ANN401 - the same
    """Return what a document holds, None if nothing. Raises yaml.YAMLError."""
    node = compose(text)
    return None if node is None else value_of(node)


def yaml_problem(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return where (the line, from 1) and why a text can't be read, on one bounded line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return 1, "it holds a character that no text file has"
    line = "".join(text.split("\n")[mark.line : mark.line + 1])
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return mark.line + 1, "a tab is used for indentation: use spaces"
    why = one_line(f"{getattr(error, 'context', None) or ''} {getattr(error, 'problem', None) or ''}")
    return mark.line + 1, shortened(_SAID_PLAINLY.get(why, why), LONGEST_PROBLEM)
