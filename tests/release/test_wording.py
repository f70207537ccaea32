"""The words that texts avoid."""

import pytest

from release.wording import EXCEPTIONS, hits, texts


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


def test_of_a_module_messages_docstrings_and_comments_are_read_and_names_are_not() -> None:
    source = (
        '"""What stands."""\n\ndef stands():\n    """It stands."""\n'
        '    return f"{stands} stands " "anew", "stands"  # nobody\n'
    )
    assert _found(source, messages=True) == [
        *((1, "stands"), (4, "stands")),
        *((5, "anew"), (5, "nobody"), (5, "stands")),
    ]
    assert _found(source, messages=False) == [(1, "stands"), (4, "stands"), (5, "nobody")]


def _found(source: str, *, messages: bool) -> list[tuple[int, str]]:
    return sorted(
        (line, hit.word)
        for line, text in texts(source, messages=messages)
        for hit in hits("m.py", text, line)
    )
