"""The words that texts avoid, with what to write instead: `make lint` looks for them.

It reads the pages at the top and in docs/, the manifests and the chart. From nodeagent/ it reads help texts
and messages (string literals of more than one word), docstrings and comments; from the other Python code, the
docstrings and comments alone.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

INSTEAD: Final = {
    r"stands?|stood": "exists, is set, is in a file",
    r"told|tells of|tells again": "reported, logged",
    r"anew": "again; restarted, reloaded",
    r"for want of|lest": "because ... is missing; so that ... not",
    r"whoever|somebody|nobody": "anyone who can; another program; no process",
    r"makes it so|mends?|mended": "applies it; fixes, repairs",
    r"by hand": "manually",
    r"astray": "to a wrong address",
    r"remed(?:y|ies|ied)": "fix, fixed",
    r"PROXY line": "PROXY header (version 2 is not a line)",
    r"proofs?|prove[ns]?": "verification, verified",
    r"in force": "active, in effect",
    r"can't be had|to be had": "is not available, could not get",
    r"shall": "is to, must, or the present tense",
    r"quarrels?|strives?": "conflict; tries to",
    r"none of ours|bears?": "not nodeagent's; has, carries",
    r"colours?|behaviours?|honours?|licences?": "the US spelling",
}

_ANY: Final = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)

# A text in which the word is right, with the reason.
EXCEPTIONS: Final = {
    "user nobody": "the name of a user",
    "User=nobody": "the name of a user",
    "`remedy`": "the name of a JSON field",
    "remedy: what to do": "the name of a field",
    "remedies: what it offers": "the name of a field",
    "ipMode: honour": "a value that was renamed",
}


class Hit(NamedTuple):
    """One word to avoid."""

    place: str
    word: str
    instead: str

    def __str__(self) -> str:
        """Return the hit on one line, as a compiler reports an error."""
        return f"{self.place}: {self.word!r}: write: {self.instead}"


def hits(place: str, text: str, first_line: int = 1) -> Iterator[Hit]:
    """Yield the words to avoid in a text, each with its line. Pure."""
    for kept in EXCEPTIONS:
        text = text.replace(kept, "")
    if not _ANY.search(text):
        return
    for number, line in enumerate(text.split("\n"), first_line):
        for pattern, instead in INSTEAD.items():
            for found in re.finditer(rf"\b(?:{pattern})\b", line, re.IGNORECASE):
                yield Hit(f"{place}:{number}", found.group(), instead)


def texts(source: str, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield docstrings, comments and, if wanted, all strings of several words, each with its line. Pure."""
    nodes: Iterable[ast.AST] = ast.walk(ast.parse(source))
    if not messages:
        nodes = (node.value for node in nodes if isinstance(node, ast.Expr))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def main() -> int:
    """Print every hit of the tree; return 1 if there is one."""
    pages = [ROOT / "Makefile", *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    for folder in ("daemonset", "charts/nodeagent/templates"):
        pages += sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    pages += sorted(path for path in (ROOT / "charts" / "nodeagent").iterdir() if path.is_file())
    found = [
        hit for page in pages for hit in hits(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
    ]
    for folder in ("nodeagent", "benchmarks", "release", "tests"):
        for module in sorted((ROOT / folder).rglob("*.py")):
            for line, text in texts(module.read_text(encoding="utf-8"), messages=folder == "nodeagent"):
                found += hits(str(module.relative_to(ROOT)), text, line)
    for hit in found:
        print(hit)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
