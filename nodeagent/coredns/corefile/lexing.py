r"""A Corefile's words and their places, as CoreDNS's lexer finds them (coredns/caddy, caddyfile/lexer.go).

- Words are parted by white space (Go's unicode.IsSpace). A carriage return is passed over wherever it stands.
- A word that begins with a quote goes on to the next quote, over lines too; in it `\"` means a quote, and any
  other backslash means itself. What follows the closing quote begins a new word.
- `#` begins a comment to the end of the line. In the middle of a word it hides only the rest of that word.
- A byte order mark at the beginning is no part of the text.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass

_SPACE = r"\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_PIECE = re.compile(
    rf"""
      (?P<space>[{_SPACE}]+)
    | (?P<comment>\#[^\n]*)
    | "(?P<quoted>(?:\\[\s\S]|[^"\\])*)(?P<close>"|\\?\Z)
    | (?P<bare>[^{_SPACE}\#"](?:[^{_SPACE}\#]|\r)*)(?:\#(?:[^{_SPACE}]|\r)*)?
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\([\s\S])")
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Token:
    """One word: its text as CoreDNS takes it, its place `start:end` in the Corefile, its line from 1 on."""

    text: str
    start: int
    end: int
    line: int

    def is_on_new_line_after(self, before: "Token | None") -> bool:
        """Whether it begins on a later line than the one that `before` ends on; None is the file's start."""
        return before is None or before.line + before.text.count("\n") < self.line


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment that no word shares its beginning with: its text from `#` on, its place, its line."""

    text: str
    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class Words:
    """All words and all comments, each in their order."""

    tokens: tuple[Token, ...]
    comments: tuple[Comment, ...]


def lex(text: str) -> Words:
    """Take a Corefile apart; never fails: to CoreDNS's lexer any text is a sequence of words."""
    line_ends = [match.start() for match in re.finditer("\n", text)]
    tokens: list[Token] = []
    comments: list[Comment] = []
    position = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise AssertionError(f"no piece of a Corefile at {position}")
        line = bisect_right(line_ends, position - 1) + 1
        if piece["comment"] is not None:
            comments.append(Comment(piece["comment"], piece.start(), piece.end(), line))
        elif piece["quoted"] is not None:
            word = _ESCAPED.sub(lambda found: '"' if found[1] == '"' else found[0], piece["quoted"])
            # An open quote with nothing behind it is no word.
            if word or piece["close"] == '"':
                tokens.append(Token(word, piece.start(), piece.end(), line))
        elif piece["bare"] is not None:
            tokens.append(Token(piece["bare"].replace("\r", ""), piece.start(), piece.end("bare"), line))
        position = piece.end()
    return Words(tuple(tokens), tuple(comments))
