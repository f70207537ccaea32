"""nodeagent's block in a Corefile or a file that it imports: answers as lines of `template`, and back. Pure.

Every other byte stays as it is. The block is between two comment lines of its own, once in each server block
that serves `.` to pods, before its first directive at the start of a line. Without lines there is no block.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import chain

from nodeagent.config.options import Config
from nodeagent.coredns.parsing import HAIRPIN_PROXY, Block, Corefile, CorefileError, Token, lex, parse
from nodeagent.model.addresses import IPAddress, is_wildcard, sort_key

COREFILE = "Corefile"
"""The key that holds it, in every known ConfigMap of CoreDNS."""
BEGIN = "# BEGIN nodeagent (managed block: edits between these lines are replaced)"
END = "# END nodeagent"
_BEGIN_AT_LEAST = "# BEGIN nodeagent"


def path_of(config: Config, config_map: str) -> str:
    """Return namespace and name of one of CoreDNS's ConfigMaps."""
    return f"{config.coredns.namespace}/{config_map}"


def choose(corefile: Corefile, config: Config, *, importable: bool) -> tuple[str | None, list[str]]:
    """Return nodeagent's key in the import ConfigMap, None for the Corefile itself; and what to know of it.

    `importable`: whether that ConfigMap exists. Raises CorefileError: `coredns.mode` is not available here.
    """
    options = config.coredns
    path, imported = path_of(config, options.config_map), path_of(config, options.import_config_map)
    remarks = []
    if all(plugin.name != "reload" for server in corefile.servers for plugin in corefile.plugins(server)):
        remarks.append(
            f"{path}: the Corefile has no `reload`: CoreDNS reads changes only when its pods restart "
            f"(kubectl -n {options.namespace} rollout restart deployment coredns)"
        )
    key = None if options.mode == "corefile" else import_key(corefile, config)
    make = f"kubectl -n {options.namespace} create configmap {options.import_config_map}"
    if options.mode == "import" and key is None:
        raise CorefileError(
            f"{path}: coredns.mode is import, but the server block for '.' imports no directory: add "
            "`import custom/*.override` to it, or set coredns.mode to corefile"
        )
    if options.mode == "import" and not importable:
        raise CorefileError(f"{imported}: no such ConfigMap; create it: {make}")
    if key is not None and not importable:
        remarks.append(
            f"{imported}: no such ConfigMap, though the Corefile imports one; so nodeagent edits the "
            f"Corefile itself, which its owner might revert. Create it: {make}"
        )
    return key if importable else None, remarks


def import_key(corefile: Corefile, config: Config) -> str | None:
    """Return nodeagent's key of the import ConfigMap: a file name that every root server block imports."""
    by_root = [[*map(posixpath.split, corefile.imported(root))] for root in corefile.roots]
    common = (pattern for pattern in chain(*by_root) if all(pattern in patterns for patterns in by_root))
    options = config.coredns
    if options.mode == "auto" and options.import_config_map == Config().coredns.import_config_map:
        # CoreDNS mounts it in a directory of this name; what is in others is not known.
        common = ((folder, name) for folder, name in common if posixpath.basename(folder) == "custom")
    # A pattern that matches every file would also match those for other places (`*.server`).
    return next((f"nodeagent{name[1:]}" for _, name in common if name.startswith("*.")), None)


def without_blocks(text: str) -> str:
    """Return the text as it was before nodeagent's blocks. Raises CorefileError: a marker is unmatched."""
    for start, end in reversed(_blocks(text)):
        text = text[:start] + text[end:]
    return text


def without_hairpin_proxy(text: str) -> str:
    """Return the text without the lines that hairpin-proxy wrote; every other byte stays."""
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not (line.lstrip().startswith("rewrite ") and line.rstrip().endswith(HAIRPIN_PROXY))
    )


def blocks_of(text: str) -> list[str]:
    """Return the lines of each block, markers included. Raises CorefileError as `without_blocks`."""
    return [text[start:end] for start, end in _blocks(text)]


def with_blocks(text: str, lines: Sequence[str]) -> str:
    """Return a Corefile with these lines, four spaces a level, in each server block that serves `.` to pods.

    Raises CorefileError, also if there is no such server block.
    """
    user = without_blocks(text)
    roots = parse(user).roots
    if not roots:
        raise CorefileError("no server block serves the zone '.': there is no place for hostnames")
    edited = user
    for place in sorted((_place(user, root) for root in roots), reverse=True):
        edited = edited[:place] + _written(user, place, lines) + edited[place:]
    return edited


def as_file(lines: Sequence[str]) -> str:
    """Return the block as a file of its own, for Corefiles that import one."""
    return "".join(f"{line}\n" for line in (BEGIN, *lines, END)) if lines else ""


def _blocks(text: str) -> list[tuple[int, int]]:
    """Return start and end of each block, its lines' ends included."""
    blocks: list[tuple[int, int]] = []
    begin: Token | None = None
    for comment in lex(text)[1]:
        if text[_line_start(text, comment.start) : comment.start].strip(" \t\ufeff"):
            continue  # It does not begin its line.
        words = comment.text.strip()
        if words.startswith(_BEGIN_AT_LEAST):
            if begin is not None:
                raise _lost(begin)
            begin = comment
        elif words == END:
            if begin is None:
                raise _lost(comment)
            blocks.append((_line_start(text, begin.start), _line_end(text, comment.end)))
            begin = None
    if begin is not None:
        raise _lost(begin)
    return blocks


def _lost(marker: Token) -> CorefileError:
    return CorefileError(
        f"line {marker.line}: unmatched marker of nodeagent's block ({marker.text.strip()!r}): "
        "nodeagent can't determine which lines are its own; nothing was changed. Fix the markers manually: "
        "kubectl edit configmap"
    )


def _place(text: str, block: Block) -> int:
    """Return where a line of the block begins that is not inside a directive."""
    after = block.opening or block.keys[-1]
    rest = [*(directive.tokens[0] for directive in block.directives), *filter(None, [block.closing])]
    if rest and rest[0].is_on_new_line_after(after):
        # Right below the brace, above the comments that may belong to the first directive.
        return _line_end(text, after.end)
    for before, token in zip(block.directives, rest[1:], strict=False):
        if token.is_on_new_line_after(before.tokens[-1]):
            return _line_start(text, token.start)
    raise CorefileError(f"the server block {block} is on one line: put its first directive on the next")


def _written(text: str, place: int, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    end = "\r\n" if text[:place].endswith("\r\n") else "\n"
    indent = _indent_at(text, place)
    unit = "\t" if "\t" in indent else "    "
    inner = (line.replace("    ", unit) for line in lines)
    return "".join(f"{indent}{line}{end}" for line in (BEGIN, *inner, END))


def _indent_at(text: str, place: int) -> str:
    """Return the indent of the first line from `place` on that has one; four spaces if none has."""
    first = next(filter(str.strip, text[place:].splitlines()), "}")
    return "    " if first.strip() == "}" else first[: len(first) - len(first.lstrip(" \t"))]


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def block_names(texts: Iterable[str]) -> dict[str, frozenset[IPAddress]]:
    """Return the names that nodeagent's blocks answer in these texts, with the addresses: what was verified.

    Of a block that someone has edited, what follows an unreadable line is left out: it is replaced anyway.
    Raises CorefileError.
    """
    answered: dict[str, frozenset[IPAddress]] = {}
    for block in chain.from_iterable(map(blocks_of, texts)):
        with suppress(CorefileError, IndexError, ValueError):
            (server,) = parse(f". {{\n{block}\n}}").servers
            for directive in server.directives:
                lines = [[token.text for token in line] for line in directive.lines()[1:]]
                answers = (line[1].split() for line in lines if line[0] == "answer")
                addresses = frozenset(ip_address(answer[-1]) for answer in answers)
                matches = (line[1] for line in lines if line[0] == "match" and addresses)
                for name in chain.from_iterable(map(_matched, matches)):
                    answered[name] = answered.get(name, frozenset()) | addresses
    return answered


def _matched(expression: str) -> list[str]:
    """Return the names of an expression of `_expressions`."""
    label, *parents = expression.removeprefix("^").removesuffix("[.]$").split("[.]")
    labels = ["*"] if label == "[^.]+" else label.removeprefix("(?:").removesuffix(")").split("|")
    return [".".join([child, *parents]) for child in labels]


TTL = 30
"""Seconds: CoreDNS's own cache keeps answers as long by default, so a wrong one lasts no longer."""
_NAMES_A_LINE = 50
"""In one expression: the measurements show no gain above, and a person can still read such a line."""
_NO_RECORDS = (
    f"{{{{ .Name }}}} {TTL} IN SOA ns.nodeagent.invalid. nodeagent.invalid. 1 {TTL} {TTL} {TTL} {TTL}"
)

Answers = Mapping[str, Sequence[IPAddress]]
"""The addresses that each name is answered with. A wildcard (`*.example.com`) matches any one label."""


def by_templates(answers: Answers) -> list[str]:
    """Return the lines of the templates, in a fixed order, four spaces per level (docs/decisions/0015).

    - A name has an answer for A and for AAAA, even an empty one (NOERROR with an SOA, RFC 2308), and an empty
      one for HTTPS (RFC 9460), whose address hints would bypass the relay.
    - Every expression is anchored at both ends; every template ends in `fallthrough`: other names pass to the
      next plugin.
    - The first template that matches answers, so exact names come before wildcards.
    - The zones after class and type are tried first, one after the other, so they are few: top-level domains.
    """
    groups: dict[tuple[bool, tuple[IPAddress, ...]], list[str]] = {}
    for name, ips in sorted(answers.items()):
        addresses = tuple(sorted(ips, key=sort_key))
        groups.setdefault((is_wildcard(name), addresses), []).append(name)
    return [
        line
        for (_, addresses), names in sorted(groups.items(), key=lambda group: (group[0][0], group[1][0]))
        for kind in ("A", "AAAA", "HTTPS")
        for line in _template(kind, addresses, names)
    ]


def _template(kind: str, addresses: tuple[IPAddress, ...], names: list[str]) -> Iterator[str]:
    version = {"A": 4, "AAAA": 6}.get(kind)
    records = [address for address in addresses if address.version == version]
    zones = sorted({name.rpartition(".")[2] for name in names})
    yield f"template IN {kind} {' '.join(zones)} {{"
    yield from (f"    match {expression}" for expression in _expressions(names))
    yield from (f'    answer "{{{{ .Name }}}} {TTL} IN {kind} {address}"' for address in records)
    if not records:
        # With an SOA, resolvers may cache the answer; and older CoreDNS rejects a template without records.
        yield f'    authority "{_NO_RECORDS}"'
    yield "    fallthrough"
    yield "}"


def _expressions(names: list[str]) -> Iterator[str]:
    """Yield an expression for a limited number of names of one parent domain each."""
    children: dict[str, list[str]] = {}
    for name in names:
        label, _, parent = name.partition(".")
        children.setdefault(parent, []).append("[^.]+" if label == "*" else label)
    for parent, labels in sorted(children.items()):
        for first in range(0, len(labels), _NAMES_A_LINE):
            chunk = labels[first : first + _NAMES_A_LINE]
            label = chunk[0] if len(chunk) == 1 else f"(?:{'|'.join(chunk)})"
            yield f"^{'[.]'.join([label, *filter(None, parent.split('.'))])}[.]$"
