"""Corefiles are read as CoreDNS reads them: the words, and the blocks they make."""

import pytest

from nodeagent.coredns.parsing import lex, parse
from tests.cases import cases_of
from tests.coredns import corpus


@pytest.mark.parametrize(("text", "words"), cases_of(__file__, "cases.yaml")["words"])
def test_words(text: str, words: list[str]) -> None:
    assert [token.text for token in lex(text)[0]] == words


def test_a_word_knows_its_line_and_place() -> None:
    text = 'a "b\nc" d\n# e\nf'
    tokens = lex(text)[0]
    assert [(token.text, token.line) for token in tokens] == [("a", 1), ("b\nc", 1), ("d", 2), ("f", 4)]
    assert [text[token.start : token.end] for token in tokens] == ["a", '"b\nc"', "d", "f"]
    assert [tokens[n + 1].is_on_new_line_after(tokens[n]) for n in range(3)] == [False, False, True]


@pytest.mark.parametrize(("name", "zones"), cases_of(__file__, "cases.yaml")["zones"])
def test_the_zones_of_each_server_block(name: str, zones: list[list[str]]) -> None:
    servers = parse(corpus.corefile(name)).servers
    assert [sorted({zone for zone, _ in server.addresses}) for server in servers] == zones


def test_plugins_of_an_imported_snippet_count_as_the_block_s_own() -> None:
    corefile = parse(corpus.corefile("gke-like"))
    (root,) = corefile.roots
    assert [plugin.name for plugin in corefile.plugins(root)][:3] == ["errors", "cache", "reload"]


def test_a_snippet_that_imports_itself_ends() -> None:
    corefile = parse("(a) {\n import a\n}\n. {\n import a\n errors\n}\n")
    assert [plugin.name for plugin in corefile.plugins(corefile.roots[0])] == ["errors"]


@pytest.mark.parametrize(("depth", "seen"), [(20, ["errors"]), (21, [])])
def test_snippets_are_followed_twenty_deep(depth: int, seen: list[str]) -> None:
    chain = "".join(f"(s{at}) {{\n import s{at + 1}\n}}\n" for at in range(1, depth))
    corefile = parse(f"{chain}(s{depth}) {{\n errors\n}}\n. {{\n import s1\n}}\n")
    assert [plugin.name for plugin in corefile.root_plugins()] == seen


def test_imports_outside_and_inside_of_server_blocks() -> None:
    corefile = parse(corpus.corefile("k3s"))
    assert corefile.imports == ("/etc/coredns/custom/*.server",)
    assert [server.addresses for server in corefile.servers] == [{(".", "53")}]
    assert corefile.imported(corefile.roots[0]) == ["/etc/coredns/custom/*.override"]
