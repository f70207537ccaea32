"""nodeagent's block is added and removed; every other byte of a Corefile stays."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.coredns.managed_block import BEGIN, END, blocks_of, with_blocks, without_blocks
from nodeagent.coredns.parsing import CorefileError, lex, parse
from tests.cases import cases_of
from tests.coredns import corpus

_CASES = cases_of(__file__, "cases.yaml")
_WORDS = st.sampled_from(_CASES["tokens"]) | st.sampled_from(_CASES["quoted"])
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


LINES = ["template IN A com {", "    match ^a[.]com[.]$", "    fallthrough", "}"]


@pytest.mark.parametrize("name", corpus.NAMES)
def test_the_block_is_in_the_server_block_that_serves_the_root_and_first_in_it(name: str) -> None:
    before, after = parse(corpus.corefile(name)), parse(with_blocks(corpus.corefile(name), LINES))
    assert len(after.servers) == len(before.servers)
    for old, new in zip(before.servers, after.servers, strict=True):
        added = [
            directive.arguments for directive in new.directives[: len(new.directives) - len(old.directives)]
        ]
        assert added == ([("IN", "A", "com")] if old in before.roots else [])
        assert [one.name for one in new.directives[len(added) :]] == [one.name for one in old.directives]


@given(corefiles())
def test_everything_outside_survives(text: str) -> None:
    edited = with_blocks(text, LINES)
    assert without_blocks(edited) == text
    assert with_blocks(edited, LINES) == edited
    assert with_blocks(edited, []) == text
    words = [token.text for token in lex(text)[0]]
    ours = [token.text for block in blocks_of(edited) for token in lex(block)[0]]
    assert len([token.text for token in lex(edited)[0]]) == len(words) + len(ours)


@given(mangled())
@example("import x\n.:53 {\n errors }\n")
@example(". {\n}\n")
@example(". { }\n")
def test_a_text_is_edited_well_or_refused_and_never_spoiled(text: str) -> None:
    try:
        edited = with_blocks(text, LINES)
    except CorefileError:
        return
    assert without_blocks(edited) == text
    assert len(parse(edited).roots) == len(parse(text).roots)


@given(corefiles(), st.lists(st.sampled_from(["# by hand\n", "log\n", "\tdebug # x\n"]), max_size=2))
def test_edits_of_others_beside_the_block_survive_it(text: str, added: list[str]) -> None:
    end = text.rindex("}")
    by_hand = text[:end] + "\n" + "".join(added) + text[end:]
    edited = with_blocks(text, LINES)
    end = edited.rindex("}")
    assert without_blocks(edited[:end] + "\n" + "".join(added) + edited[end:]) == by_hand


def test_line_ends_and_indent_are_the_file_s_own() -> None:
    windows = with_blocks(corpus.corefile("windows-line-ends"), LINES)
    assert windows.count("\n") == windows.count("\r\n")
    tabs = with_blocks(corpus.corefile("gke-like"), LINES)
    assert f"\n\t{BEGIN}\n\ttemplate IN A com {{\n\t\tmatch " in tabs


@pytest.mark.parametrize(("lines", "line"), _CASES["unmatched"])
def test_a_marker_without_its_twin_is_refused_with_its_line(lines: list[str], line: int) -> None:
    marked = [{"BEGIN": BEGIN, "END": END}.get(each, each) for each in lines]
    with pytest.raises(CorefileError, match=f"^line {line}: unmatched marker"):
        without_blocks("\n".join([". {", *marked, "}\n"]))


@pytest.mark.parametrize(("text", "why"), _CASES["refused"])
def test_what_coredns_would_not_take_is_refused(text: str, why: str) -> None:
    with pytest.raises(CorefileError, match=why):
        with_blocks(text, LINES)


def test_markers_in_quotes_are_no_markers() -> None:
    text = f'. {{\n    template IN TXT . {{\n        answer "x\n{BEGIN}\n"\n    }}\n}}\n'
    assert without_blocks(text) == text
    assert without_blocks(with_blocks(text, LINES)) == text
