"""The words that texts for users avoid."""

from __future__ import annotations

import pytest

from release.wording import EXCEPTIONS, hits, messages


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What stands is told\nanew.", ["stands", "told", "anew"]),
        ("The PROXY line is missing", ["PROXY line"]),
        ("It was understood again, and is outstanding.", []),
        *((text, []) for text in EXCEPTIONS),
    ],
)
def test_words_to_avoid_are_found_whole(text: str, words: list[str]) -> None:
    assert sorted(hit.word for hit in hits("page.md", text)) == sorted(words)


def test_a_hit_names_file_line_and_what_to_write() -> None:
    (hit,) = hits("docs/page.md", "one\ntwo by hand")
    assert str(hit) == "docs/page.md:2: 'by hand': write: manually"


def test_of_a_module_messages_are_read_and_docstrings_are_not() -> None:
    source = (
        '"""What stands."""\n\ndef f():\n    """It stands."""\n    return f"{f} stands " "anew", "stands"\n'
    )
    assert [line for line, _ in messages(source)] == [5]
    assert [hit.word for line, text in messages(source) for hit in hits("m.py", text, line)] == [
        "stands",
        "anew",
    ]
