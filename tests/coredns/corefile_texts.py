"""Strategies for Corefiles: made by the grammar, with all that a person may write between the words."""

from hypothesis import strategies as st

from tests.coredns import corpus

_WORDS = st.one_of(
    st.sampled_from(
        ["errors", "cache", "30", ".", "/etc/resolv.conf", ":9153", "{$PORT}", "import", "a#b", 'x"y', "\\"]
    ),
    st.sampled_from(
        ['"a quoted word"', '"two\nlines"', '"# BEGIN nodeagent"', '"an \\" escape"', '""', '"{x}"']
    ),
)
_SPACES = st.sampled_from([" ", "  ", "\t", " \r", "\u00a0"])
_ENDS = st.sampled_from(["\n", "\r\n", "\n\n", ' # a comment { " }\n', "\n\t# another\n", "  \n"])


@st.composite
def _lines(draw: st.DrawFn, depth: int = 2) -> str:
    """One directive, with a block of its own now and then."""
    words = draw(st.lists(_WORDS, min_size=1, max_size=4))
    text = draw(_SPACES).join(["plugin", *words])
    if depth and draw(st.booleans()):
        inner = "".join(draw(st.lists(_lines(depth - 1), max_size=3)))
        text += f" {{{draw(_ENDS)}{inner}}}"
    return draw(st.sampled_from(["", "    ", "\t"])) + text + draw(_ENDS)


@st.composite
def server_blocks(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> str:
    """A server block, its brace on the line of its keys or on the next one."""
    brace = draw(st.sampled_from([" {", "\n{", " # one comment\n{"]))
    inner = "".join(draw(st.lists(_lines(), max_size=4)))
    return draw(keys) + brace + draw(_ENDS) + inner + "}" + draw(_ENDS)


_ROOTS = st.sampled_from(
    [".", ".:53", "dns://.:5353", "example.com .", "a.example.com,\n.:53", "tls://.:853"]
)
_OTHERS = st.sampled_from(["example.org", "corp.example.com:53", "10.0.0.0/8:53", "(snippet)"])


@st.composite
def corefiles(draw: st.DrawFn) -> str:
    """A Corefile with at least one server block for `.`, which CoreDNS's parser would take."""
    blocks = draw(st.lists(server_blocks(st.one_of(_ROOTS, _OTHERS)), max_size=2))
    blocks.insert(draw(st.integers(0, len(blocks))), draw(server_blocks(_ROOTS)))
    return draw(st.sampled_from(["", "\ufeff", "# head\n", "\n\n"])) + "".join(blocks)


def mangled() -> st.SearchStrategy[str]:
    """Real Corefiles with pieces cut out, repeated, or put elsewhere: mostly such that CoreDNS refuses."""
    pieces = st.sampled_from(
        [line for name in corpus.NAMES for line in corpus.corefile(name).splitlines(keepends=True)]
    )
    return st.lists(pieces, max_size=30).map("".join)
