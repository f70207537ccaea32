"""What docs/ repeats of the code is made from it, and each code has its meaning."""

from release.docs_tables import pages, without_meaning


def test_the_pages_repeat_the_code_word_by_word() -> None:
    differing = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    assert differing == [], "run `make docs`"


def test_every_code_has_its_meaning() -> None:
    assert without_meaning() == []
