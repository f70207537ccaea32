r"""A Corefile's server blocks, snippets and imports (caddyfile/parse.go), and the names that its lines set.

It is read just far enough to know which server blocks there are, their zones and their plugins. The contents
of an imported file are not known here; snippets are. Words are as CoreDNS's lexer finds them (coredns/caddy,
caddyfile/lexer.go):

- Words are separated by white space (Go's unicode.IsSpace). A carriage return is ignored anywhere.
- A word that begins with a quote extends to the next quote, also over lines; in it `\"` means a quote, and
  any other backslash means itself. Text after the closing quote begins a new word.
- `#` begins a comment to the end of the line. In the middle of a word it hides only the rest of that word.
- A byte order mark at the beginning is not part of the text.
"""

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, pairwise

from msgspec import Struct

from nodeagent.errors import NodeagentError
from nodeagent.model.addresses import canonical, covering, is_wildcard

_BREAK = r"\t\n\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACE = rf"\r{_BREAK}"
_PIECE = re.compile(
    rf"""
      (?P<space>[{_SPACE}]+)
    | (?P<comment>\#[^\n]*)
    | "(?P<quoted>[^"\\]*(?:\\[\s\S][^"\\]*)*)(?P<close>"|\\?\Z)
    | (?P<bare>[^{_SPACE}\#"][^{_BREAK}\#]*)(?:\#[^{_BREAK}]*)?
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\([\s\S])")


class Token(Struct, frozen=True):
    """One word, or one comment outside of words, from `#` on: at `start:end`; lines count from 1 on."""

    text: str
    start: int
    end: int
    line: int

    def is_on_new_line_after(self, before: "Token") -> bool:
        """Whether it begins on a later line than `before` ends."""
        return before.line + before.text.count("\n") < self.line


def lex(text: str) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """Return all words of a text, and all comments."""
    line_ends = [match.start() for match in re.finditer("\n", text)]
    tokens: list[Token] = []
    comments: list[Token] = []
    position = len(text) - len(text.removeprefix("\ufeff"))  # a byte order mark
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise AssertionError(f"no piece of a Corefile at {position}")
        line = bisect_right(line_ends, position - 1) + 1
        if piece["comment"] is not None:
            comments.append(Token(piece["comment"], piece.start(), piece.end(), line))
        elif piece["quoted"] is not None:
            word = _ESCAPED.sub(lambda match: '"' if match[1] == '"' else match[0], piece["quoted"])
            # An open quote with nothing after it is not a word.
            if word or piece["close"] == '"':
                tokens.append(Token(word, piece.start(), piece.end(), line))
        elif piece["bare"] is not None:
            tokens.append(Token(piece["bare"].replace("\r", ""), piece.start(), piece.end("bare"), line))
        position = piece.end()
    return tuple(tokens), tuple(comments)


_ADDRESS = re.compile(r"([a-z0-9]+://)?(.*?)(?::([0-9]*|\{[$%][^{}]*\}))?", re.DOTALL)
_DEEPEST_IMPORT = 20


class CorefileError(NodeagentError):
    """CoreDNS would reject the Corefile, or the place for new lines is unclear; nothing was changed."""


class Directive(Struct, frozen=True):
    """One plugin with its arguments and its block, or an import."""

    tokens: tuple[Token, ...]

    @property
    def name(self) -> str:
        """The first word."""
        return self.tokens[0].text

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the name, up to its block or the end of the line."""
        return tuple(token.text for token in self.lines()[0][1:])

    def lines(self) -> list[list[Token]]:
        """Return the words line by line, without the braces: the directive itself, then its block."""
        lines: list[list[Token]] = [[]]
        for before, token in pairwise((self.tokens[0], *self.tokens)):
            if token.is_on_new_line_after(before):
                lines.append([])
            if token.text not in {"{", "}"}:
                lines[-1].append(token)
        return [line for number, line in enumerate(lines) if line or number == 0]


class Block(Struct, frozen=True):
    """A server block or a snippet."""

    keys: tuple[Token, ...]
    opening: Token | None
    closing: Token | None
    directives: tuple[Directive, ...]

    @property
    def addresses(self) -> frozenset[tuple[str, str]]:
        """Its zones, in lower case without a final dot (`.` is the root), each with its port or scheme."""
        keys = filter(None, (_ADDRESS.fullmatch(key.text.lower()) for key in self.keys))
        parts = ((key[1] or "dns://", key[2].removesuffix(".") or ".", key[3] or "53") for key in keys)
        return frozenset((zone, port if scheme == "dns://" else scheme) for scheme, zone, port in parts)

    def __str__(self) -> str:
        """Show it to a person."""
        return f"{' '.join(key.text for key in self.keys)} (line {self.keys[0].line})"


@dataclass(frozen=True, slots=True)
class Corefile:
    """A parsed Corefile; `imports` are the patterns of the files that it imports beside its server blocks."""

    text: str
    servers: tuple[Block, ...]
    snippets: Mapping[str, Block] = field(hash=False)
    imports: tuple[str, ...]
    comments: tuple[Token, ...]

    @property
    def roots(self) -> tuple[Block, ...]:
        """The server blocks that serve `.` to pods: those at port 53; if there is none, all of `.`."""
        roots = [server for server in self.servers if any(zone == "." for zone, _ in server.addresses)]
        return tuple(root for root in roots if (".", "53") in root.addresses) or tuple(roots)

    def plugins(self, block: Block, depth: int = _DEEPEST_IMPORT) -> Iterator[Directive]:
        """Yield all directives of a block in their order; an imported snippet's in place of the import."""
        for directive in block.directives:
            snippet = self.snippets.get(" ".join(directive.arguments)) if directive.name == "import" else None
            if snippet is None:
                yield directive
            elif depth:
                yield from self.plugins(snippet, depth - 1)

    def imported(self, block: Block) -> list[str]:
        """Return the patterns of the files that a block imports."""
        plugins = (plugin for plugin in self.plugins(block) if plugin.name == "import")
        return [pattern for plugin in plugins for pattern in plugin.arguments[:1]]

    def root_plugins(self) -> Iterator[Directive]:
        """Yield the same of these server blocks."""
        for root in self.roots:
            yield from self.plugins(root)


def parse(text: str) -> Corefile:
    """Parse a Corefile. Raises CorefileError, which names the line, if CoreDNS would not accept it either."""
    words, comments = lex(text)
    reader = _Reader(words)
    servers: list[Block] = []
    snippets: dict[str, Block] = {}
    imports: list[str] = []
    while (token := reader.peek()) is not None:
        if token.text == "import":
            imports += reader.directive().arguments[:1]
            continue
        block = reader.block()
        name = block.keys[0].text if len(block.keys) == 1 else ""
        if name.startswith("(") and name.endswith(")"):
            snippets[name[1:-1]] = block
        elif block.keys:
            servers.append(block)
    return Corefile(text, tuple(servers), snippets, tuple(imports), comments)


class _Reader:
    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self._tokens = tokens
        self._next = 0

    def peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def take(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def on_new_line(self) -> bool:
        return self._tokens[self._next].is_on_new_line_after(self._tokens[self._next - 1])

    def block(self) -> Block:
        keys = self._keys()
        token = self.peek()
        # A single server block needs no braces: it reaches to the end.
        opening = self.take() if token is not None and token.text == "{" else None
        directives: list[Directive] = []
        while (token := self.peek()) is not None and token.text != "}":
            directives.append(self.directive())
        if opening is not None and token is None:
            raise CorefileError(f"line {opening.line}: its brace is never closed")
        return Block(keys, opening, self.take() if token is not None else None, tuple(directives))

    def _keys(self) -> tuple[Token, ...]:
        keys: list[Token] = []
        more = True
        while (token := self.peek()) is not None and token.text != "{" and (more or not self.on_new_line()):
            more = token.text.endswith(",")
            if text := token.text.removesuffix(","):
                keys.append(Token(text, token.start, token.end, token.line))
            self.take()
        if token is not None and token.text == "{" and (more or not keys):
            raise CorefileError(f"line {token.line}: a server block without an address")
        return tuple(keys)

    def directive(self) -> Directive:
        tokens = [self.take()]
        depth = 0
        while (token := self.peek()) is not None:
            if token.text == "{":
                depth += 1
            elif depth == 0 and self.on_new_line():
                break
            elif token.text == "}":
                if depth == 0:
                    raise CorefileError(f"line {token.line}: a closing brace without its opening one")
                depth -= 1
            tokens.append(self.take())
        if depth:
            raise CorefileError(f"line {tokens[0].line}: the block of {tokens[0].text} is never closed")
        return Directive(tuple(tokens))


HAIRPIN_PROXY = "# Added by hairpin-proxy"
"""The end of every line that hairpin-proxy's controller writes."""
_GEN2 = "# managed-by: hairpin-proxy-gen2"
"""The comment that its other successor writes on each line; ouroboros writes a pair of them around all."""


class OwnLine(Struct, frozen=True):
    """A line that sets a name: its place, its plugin, and the program whose marker it has, if any."""

    where: str
    plugin: str
    writer: str = ""


def own_names(corefile: Corefile, where: str, files: Mapping[str, str]) -> dict[str, OwnLine]:
    """Return the exact names that `rewrite name` and `hosts` lines of the root server blocks set.

    The Corefile, `where` to a person, has no block of nodeagent's; `files` are next to it (k3s' NodeHosts).
    """
    writers = _writers(corefile)
    lines: dict[str, OwnLine] = {}
    for directive in corefile.root_plugins():
        found: dict[str, OwnLine] = {}
        for token in _names(directive):
            line = OwnLine(f"line {token.line} of {where}", directive.name, writers.get(token.line, ""))
            found.setdefault(canonical(token.text), line)
        file, *zones = (directive.arguments if directive.name == "hosts" else ()) or ("",)
        key, zones = posixpath.basename(file), [*map(canonical, zones)]
        for number, entry in enumerate(files.get(key, "").splitlines(), 1):
            for name in entry.partition("#")[0].split()[1:]:
                found.setdefault(canonical(name), OwnLine(f"line {number} of the hosts file {key}", "hosts"))
        bound = zones and "" not in zones
        for name, line in found.items():
            if not bound or covering(name, zones):
                lines.setdefault(name, line)
    return lines


_ZONES_AFTER: Mapping[str, int] = {"template": 3, "file": 2, "auto": 1, "secondary": 1, "kubernetes": 1}
"""Plugins that answer whole zones, and at which word of their first line these begin."""


def by_zone(corefile: Corefile, where: str, names: Collection[str]) -> dict[str, OwnLine]:
    """Return the names that a zone or a `template` of a root server block answers.

    CoreDNS would ask nodeagent's lines before a zone, and the first of all templates. For the root, only a
    template with an answer counts: one without is the end of the block (`rcode NXDOMAIN`), and which names a
    zone plugin has there (`auto` without zones; `file` with `fallthrough`), only its files show.
    """
    lines: dict[str, OwnLine] = {}
    for plugin in corefile.root_plugins():
        first, *inner = [[token.text for token in line] for line in plugin.lines()]
        begin = _ZONES_AFTER.get(plugin.name)
        if begin is None or (plugin.name == "template" and first[2:3] not in (["A"], ["ANY"])):
            continue
        zones = [canonical(zone) for zone in first[begin:]]
        if plugin.name == "kubernetes" and ["fallthrough"] in inner:
            zones = [f"{part}.{zone}" for zone in zones for part in ("svc", "pod")]
        matches = [regex for words in inner if words[0] == "match" for regex in words[1:]] or [""]
        answers = any(words[0] == "answer" for words in inner)
        over = {f"*.{zone.partition('.')[2]}" for zone in zones}
        line = OwnLine(f"line {plugin.tokens[0].line} of {where}", plugin.name)
        for name in names:
            below = covering(name, zones) or (answers and (not zones or "" in zones or name in over))
            if below and any(_may_match(regex, name) for regex in matches):
                lines.setdefault(name, line)
    return lines


def by_pattern(corefile: Corefile, where: str, names: Iterable[str]) -> dict[str, str]:
    """Return the names that a `rewrite name` by pattern of a root server block takes first, with its place.

    CoreDNS asks `rewrite` before all that nodeagent writes (plugin.cfg), whatever their order.
    """
    lines: dict[str, str] = {}
    wanted = sorted(names)
    rules = chain.from_iterable(map(_rewrites, corefile.root_plugins()))
    for kind, pattern, *_ in (words for words in rules if len(words) > 1):
        if matches := _MATCHES.get(kind.text):
            line = f"line {pattern.line} of {where} (rewrite name {kind.text} {pattern.text})"
            for name in (name for name in wanted if matches(pattern.text, name)):
                lines.setdefault(name, line)
    return lines


def _writers(corefile: Corefile) -> dict[int, str]:
    """Return the program whose marker a line has, by line."""
    writers: dict[int, str] = {}
    begun = 0
    for comment in corefile.comments:
        text = comment.text.rstrip()
        if text.endswith(HAIRPIN_PROXY):
            writers[comment.line] = "hairpin-proxy"
        elif text.startswith(_GEN2):
            writers[comment.line] = "hairpin-proxy-gen2"
        elif "BEGIN ouroboros" in text:
            begun = comment.line
        elif "END ouroboros" in text and begun:
            writers |= dict.fromkeys(range(begun, comment.line), "ouroboros")
            begun = 0
    return writers


def _names(directive: Directive) -> Iterator[Token]:
    if directive.name == "hosts":
        for line in directive.lines()[1:]:
            # An address and its names; the rest are options (ttl, no_reverse, reload, fallthrough).
            if line[0].text[:1].isdigit() or ":" in line[0].text:
                yield from line[1:]
    for words in _rewrites(directive):
        exact = len(words) > 2 and words[0].text == "exact"
        if len(words) > 1 and words[0].text not in _MATCHES:
            yield words[exact]


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
    with suppress(re.error, OverflowError):
        return re.search(pattern, f"{name}.") is not None  # as a query has it
    return False


def _may_match(pattern: str, name: str) -> bool:
    # Of a wildcard's hostnames, a template may answer some: those of a pattern that spells out its parent,
    # at a label's border, and with no whole label before it.
    before = re.sub(r"[][\\]", "", pattern).split(name[2:])[:-1] if is_wildcard(name) else ()
    spelt = not all(re.search(r"[\w-]$|[.][\w-]+[.]$", each) for each in before)
    return spelt or _matches_regex(pattern, name.replace("*", "any"))


_MATCHES: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": lambda pattern, name: name.startswith(pattern.lower()),
    "suffix": lambda pattern, name: name.endswith(pattern.lower().removesuffix(".")),
    "substring": lambda pattern, name: pattern.lower() in name,
    "regex": _matches_regex,
}
