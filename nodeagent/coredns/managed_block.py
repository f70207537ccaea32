"""nodeagent's block in a Corefile, and which names a Corefile has answers for. Pure.

The block is added and removed, and every other byte stays as it is. It is between two comment lines of its
own, once in each server block that serves `.`, before that server block's first directive at the start of a
line. Without lines there is no block.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import chain

from msgspec import Struct

from nodeagent.coredns.parsing import Block, Corefile, CorefileError, Directive, Token, lex, parse
from nodeagent.model.addresses import IPAddress, canonical

BEGIN = "# BEGIN nodeagent (managed block: edits between these lines are replaced)"
END = "# END nodeagent"
_BEGIN_AT_LEAST = "# BEGIN nodeagent"
_INDENT = re.compile(r"[ \t]*")


def without_blocks(text: str) -> str:
    """Return the text without nodeagent's blocks, and so as it was before them; idempotent.

    Raises:
        CorefileError: a marker is unmatched: it is unknown which lines after it are nodeagent's.
    """
    for start, end in reversed(_blocks(text)):
        text = text[:start] + text[end:]
    return text


def blocks_of(text: str) -> list[str]:
    """Return the lines of each block, markers included. Raises CorefileError as `without_blocks`."""
    return [text[start:end] for start, end in _blocks(text)]


def with_blocks(text: str, lines: Sequence[str]) -> str:
    """Return the text with the block in each server block that serves `.`, and only there. Idempotent.

    Args:
        text: A Corefile.
        lines: Those of the block, indented by four spaces per level below the first.

    Raises:
        CorefileError: CoreDNS would reject the text, a marker is unmatched, or no server block serves
            `.`; the text says which line.
    """
    user = without_blocks(text)
    roots = parse(user).roots
    if not roots:
        raise CorefileError("no server block serves the zone '.': there is no place for hostnames")
    pieces: list[str] = []
    position = 0
    for place in sorted(_place(user, root) for root in roots):
        pieces += [user[position:place], _written(user, place, lines)]
        position = place
    return "".join([*pieces, user[position:]])


def as_file(lines: Sequence[str]) -> str:
    """Return the block as a file of its own, for Corefiles that import one."""
    return "".join(f"{line}\n" for line in (BEGIN, *lines, END)) if lines else ""


def _blocks(text: str) -> list[tuple[int, int]]:
    """Return start and end of each block, its lines' ends included."""
    found: list[tuple[int, int]] = []
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
            found.append((_line_start(text, begin.start), _line_end(text, comment.end)))
            begin = None
    if begin is not None:
        raise _lost(begin)
    return found


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
    raise CorefileError(
        f"the server block {block} is on one line: write its first directive on the next line"
    )


def _written(text: str, place: int, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    before = text[:place]
    end = "\r\n" if before.endswith("\r\n") else "\n"
    indent = _indent_at(text, place)
    unit = "\t" if "\t" in indent else "    "
    levels = [(len(line) - len(line.lstrip(" "))) // 4 for line in lines]
    inner = (unit * level + line.lstrip(" ") for level, line in zip(levels, lines, strict=True))
    return "".join(f"{indent}{line}{end}" for line in (BEGIN, *inner, END))


def _indent_at(text: str, place: int) -> str:
    """Return the indent of the first line from `place` on that has one; four spaces if none has."""
    for line in text[place:].splitlines():
        found = _INDENT.match(line)
        if line.strip() == "}" or found is None:
            break
        if line.strip():
            return found[0]
    return "    "


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


HAIRPIN_PROXY = "# Added by hairpin-proxy"
"""The end of every line that hairpin-proxy's controller writes."""


_MARKED_LINES = {"hairpin-proxy-gen2": "# managed-by: hairpin-proxy-gen2"}
_MARKED_BLOCKS = {"ouroboros": ("BEGIN ouroboros", "END ouroboros")}
"""How its other successors mark what they write: a comment on each line, or a pair of them around all."""


class OwnLine(Struct, frozen=True):
    """A line that sets a name: its place, its plugin, and the program whose marker it has, if any."""

    where: str
    plugin: str
    writer: str = ""

    @property
    def by_hairpin_proxy(self) -> bool:
        """Whether hairpin-proxy wrote it, so that `--adopt` may remove it."""
        return self.writer == "hairpin-proxy"


def own_names(corefile: Corefile, where: str) -> dict[str, OwnLine]:
    """Return the exact names that `rewrite name` and inline `hosts` lines of the root server blocks set.

    The Corefile must be without nodeagent's own block; `where` is its name for a person. What a file means
    for names is not known here; for rewrites by pattern, see `by_pattern`.
    """
    writers = _writers(corefile)
    found: dict[str, OwnLine] = {}
    for root in corefile.roots:
        for directive in corefile.plugins(root):
            for token in _names(directive):
                line = OwnLine(f"line {token.line} of {where}", directive.name, writers.get(token.line, ""))
                found.setdefault(canonical(token.text), line)
    return found


def by_pattern(corefile: Corefile, where: str, names: Iterable[str]) -> dict[str, str]:
    """Return the names that a `rewrite name` by pattern of a root server block takes first, with its place.

    CoreDNS asks `rewrite` before all that nodeagent writes (plugin.cfg), whatever their order.
    """
    found: dict[str, str] = {}
    wanted = sorted(names)
    for root in corefile.roots:
        for directive in corefile.plugins(root):
            for kind, token in _patterns(directive):
                for name in (each for each in wanted if _MATCHES[kind](token.text, each)):
                    line = f"line {token.line} of {where} (rewrite name {kind} {token.text})"
                    found.setdefault(name, line)
    return found


def _writers(corefile: Corefile) -> dict[int, str]:
    """Return the programs whose markers lines have, by line."""
    found: dict[int, str] = {}
    begun: dict[str, int] = {}
    for comment in corefile.comments:
        text = comment.text.rstrip()
        if text.endswith(HAIRPIN_PROXY):
            found[comment.line] = "hairpin-proxy"
        for writer, marker in _MARKED_LINES.items():
            if text.startswith(marker):
                found[comment.line] = writer
        for writer, (begin, end) in _MARKED_BLOCKS.items():
            if begin in text:
                begun[writer] = comment.line
            elif end in text and writer in begun:
                found |= dict.fromkeys(range(begun.pop(writer), comment.line), writer)
    return found


def without_hairpin_proxy(text: str) -> str:
    """Return the text without the lines that hairpin-proxy wrote; every other byte stays."""
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not (line.lstrip().startswith("rewrite ") and line.rstrip().endswith(HAIRPIN_PROXY))
    )


def _names(directive: Directive) -> Iterator[Token]:
    if directive.name == "hosts":
        for line in directive.lines()[1:]:
            # An address and its names; the rest are options (ttl, no_reverse, reload, fallthrough).
            if line[0].text[:1].isdigit() or ":" in line[0].text:
                yield from line[1:]
    for words in _rewrites(directive):
        match [word.text for word in words]:
            case ["exact", _, _, *_]:
                yield words[1]
            case ["prefix" | "suffix" | "substring" | "regex", *_]:
                pass
            case [_, _, *_]:
                yield words[0]


def _patterns(directive: Directive) -> Iterator[tuple[str, Token]]:
    for words in _rewrites(directive):
        if len(words) > 1 and words[0].text in _MATCHES:
            yield words[0].text, words[1]


def _rewrites(directive: Directive) -> Iterator[list[Token]]:
    """Yield the words after `name` of each rule: `rewrite [continue|stop] name ...`, or lines in braces."""
    if directive.name != "rewrite":
        return
    first, *inner = directive.lines()
    words = first[1:]
    if words and words[0].text in {"continue", "stop"}:
        words = words[1:]
    for line in [words] if words else inner:
        if line and line[0].text == "name":
            yield line[1:]


def _matches_regex(pattern: str, name: str) -> bool:
    # Go's RE2 and Python's differ in what hardly any Corefile has; then nothing is said of it.
    with suppress(re.error):
        return re.search(pattern, name) is not None
    return False


_MATCHES: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": lambda text, name: name.startswith(text.lower()),
    "suffix": lambda text, name: name.endswith(text.lower().removesuffix(".")),
    "substring": lambda text, name: text.lower() in name,
    "regex": _matches_regex,
}


def block_names(texts: Iterable[str]) -> dict[str, frozenset[IPAddress]]:
    """Return the names that the blocks answer in Corefiles, and in files that they import, with addresses.

    They are the memory of what was verified, while DNS is not available. Of a block that someone has edited,
    what follows an unreadable line is left out: it is replaced anyway.

    Raises:
        CorefileError: a marker is unmatched.
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
    """Return the names of an expression as naming.py writes it."""
    label, *parents = expression.removeprefix("^").removesuffix("[.]$").split("[.]")
    labels = ["*"] if label == "[^.]+" else label.removeprefix("(?:").removesuffix(")").split("|")
    return [".".join([one, *parents]) for one in labels]
