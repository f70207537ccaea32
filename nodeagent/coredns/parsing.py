r"""A Corefile's server blocks, snippets and imports, by the rules of CoreDNS's parser (caddyfile/parse.go).

It is read just far enough to know where a server block begins and ends, which zones it serves and which
plugins it has. The contents of an imported file are not known here; snippets are.

A Corefile's words and their places, as CoreDNS's lexer finds them (coredns/caddy, caddyfile/lexer.go).

- Words are separated by white space (Go's unicode.IsSpace). A carriage return is ignored anywhere.
- A word that begins with a quote extends to the next quote, also over lines; in it `\"` means a quote, and
  any other backslash means itself. Text after the closing quote begins a new word.
- `#` begins a comment to the end of the line. In the middle of a word it hides only the rest of that word.
- A byte order mark at the beginning is not part of the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from nodeagent.errors import NodeagentError

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
_BYTE_ORDER_MARK = "\ufeff"


class Token(Struct, frozen=True):
    """One word as CoreDNS takes it, or one comment that begins outside any word, from `#` on.

    Its place is `start:end` in the Corefile; lines count from 1 on.
    """

    text: str
    start: int
    end: int
    line: int

    def is_on_new_line_after(self, before: "Token | None") -> bool:
        """Whether it begins on a later line than the one on which `before` ends; None is the file's start."""
        return before is None or before.line + before.text.count("\n") < self.line


def lex(text: str) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """Return all words of a Corefile, and all comments; to CoreDNS's lexer, any text is some of both."""
    line_ends = [match.start() for match in re.finditer("\n", text)]
    tokens: list[Token] = []
    comments: list[Token] = []
    position = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise AssertionError(f"no piece of a Corefile at {position}")
        line = bisect_right(line_ends, position - 1) + 1
        if piece["comment"] is not None:
            comments.append(Token(piece["comment"], piece.start(), piece.end(), line))
        elif piece["quoted"] is not None:
            word = _ESCAPED.sub(lambda found: '"' if found[1] == '"' else found[0], piece["quoted"])
            # An open quote with nothing after it is not a word.
            if word or piece["close"] == '"':
                tokens.append(Token(word, piece.start(), piece.end(), line))
        elif piece["bare"] is not None:
            tokens.append(Token(piece["bare"].replace("\r", ""), piece.start(), piece.end("bare"), line))
        position = piece.end()
    return tuple(tokens), tuple(comments)


_SCHEME = re.compile(r"[a-z0-9]+://")
_PORT = re.compile(r":([0-9]*|\{[$%][^{}]*\})\Z")
_DEEPEST_IMPORT = 20


class CorefileError(NodeagentError):
    """CoreDNS would reject the Corefile, or the place for new lines is unclear; nothing was changed."""


class Directive(Struct, frozen=True):
    """One plugin with its arguments and its block, or an import; `tokens` begin with its name."""

    tokens: tuple[Token, ...]

    @property
    def name(self) -> str:
        """The plugin's name, or `import`."""
        return self.tokens[0].text

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the name, up to its block or the end of the line."""
        return tuple(token.text for token in self.lines()[0][1:])

    def lines(self) -> list[list[Token]]:
        """Return the words line by line, without the braces: the directive itself, then its block."""
        lines: list[list[Token]] = [[]]
        before: Token | None = None
        for token in self.tokens:
            if before is not None and token.is_on_new_line_after(before):
                lines.append([])
            before = token
            if token.text not in {"{", "}"}:
                lines[-1].append(token)
        return [line for number, line in enumerate(lines) if line or number == 0]


class Block(Struct, frozen=True):
    """A server block (or a snippet): its keys, its braces if it has any, its directives."""

    keys: tuple[Token, ...]
    opening: Token | None
    closing: Token | None
    directives: tuple[Directive, ...]

    @property
    def zones(self) -> frozenset[str]:
        """The zones it serves, in lower case without a final dot; `.` is the root."""
        bare = (_PORT.sub("", _SCHEME.sub("", key.text.lower(), count=1)) for key in self.keys)
        return frozenset(zone.removesuffix(".") or "." for zone in bare)

    def __str__(self) -> str:
        """For a person."""
        return f"{' '.join(key.text for key in self.keys)} (line {self.keys[0].line})"


@dataclass(frozen=True, slots=True)
class Corefile:
    """A parsed Corefile."""

    text: str
    servers: tuple[Block, ...]
    snippets: Mapping[str, Block] = field(hash=False)
    comments: tuple[Token, ...]

    @property
    def roots(self) -> tuple[Block, ...]:
        """The server blocks that serve `.`, whatever their ports: they answer names of no other zone."""
        return tuple(server for server in self.servers if "." in server.zones)

    def plugins(self, block: Block) -> Iterator[Directive]:
        """Return all directives of a block in their order; an imported snippet's in place of the import."""
        return self._expanded(block, _DEEPEST_IMPORT)

    def _expanded(self, block: Block, depth: int) -> Iterator[Directive]:
        for directive in block.directives:
            snippet = self.snippets.get(" ".join(directive.arguments)) if directive.name == "import" else None
            if snippet is None:
                yield directive
            elif depth:
                yield from self._expanded(snippet, depth - 1)


def parse(text: str) -> Corefile:
    """Parse a Corefile.

    Raises:
        CorefileError: CoreDNS would not accept it either; the text names the line.
    """
    words, comments = lex(text)
    reader = _Reader(words)
    servers: list[Block] = []
    snippets: dict[str, Block] = {}
    while (token := reader.peek()) is not None:
        if token.text == "import":
            reader.directive()  # files of server blocks, which are others'
            continue
        block = reader.block()
        name = block.keys[0].text if len(block.keys) == 1 else ""
        if name.startswith("(") and name.endswith(")"):
            snippets[name[1:-1]] = block
        elif block.keys:
            servers.append(block)
    return Corefile(text, tuple(servers), snippets, comments)


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
        """Whether the next word begins a line."""
        before = self._tokens[self._next - 1] if self._next else None
        return self._tokens[self._next].is_on_new_line_after(before)

    def block(self) -> Block:
        keys = self._keys()
        opening = self.peek()
        if opening is None or opening.text != "{":
            # A single server block needs no braces: it reaches to the end.
            directives, closing = self._directives()
            return Block(keys, None, closing, directives)
        self.take()
        directives, closing = self._directives()
        if closing is None:
            raise CorefileError(f"line {opening.line}: its brace is never closed")
        return Block(keys, opening, closing, directives)

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

    def _directives(self) -> tuple[tuple[Directive, ...], Token | None]:
        directives: list[Directive] = []
        while (token := self.peek()) is not None:
            if token.text == "}":
                return tuple(directives), self.take()
            directives.append(self.directive())
        return tuple(directives), None

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
