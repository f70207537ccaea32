"""The pages for users: their length, their sentences, and the commands that they show.

Every command is checked (it exists, with its options), or its page says that no test runs it.
"""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from nodeagent.cli.main import nodeagent

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
_TARGETS = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
_CHECKED = frozenset({"nodeagent", "make", "python"})
_LONGEST_PAGE = 250
_LONGER = {"runbook.md": 300}
"""It has a section for each alert and Event, and a row for each code: to be looked up, not read."""
_LONGEST_SENTENCE = 25
"""Words, on average."""

# Programs that are taken for a command without a prompt before it.
_BARE = _CHECKED | {"curl", "docker", "eval", "git", "helm", "kubectl", "nft", "vagrant"}
_PROMPT = re.compile(r"[\w-]*[$#] ")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_NOTE = re.compile(r"No test runs the ([^.]+?) commands? on this page")


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command in the code blocks of a page; of a pipe, its first command."""
    fenced = data = False
    for line in text.replace("\\\n", " ").split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            data = line.strip() in ("```yaml", "```json", "```toml")
            continue
        if data if fenced else not line.startswith("    "):
            continue
        prompt = _PROMPT.match(line.strip())
        try:
            words = shlex.split(line.strip()[prompt.end() if prompt else 0 :], comments=True)
        except ValueError:
            continue  # A text with a lone quote: output, or a picture.
        while words and _ASSIGNMENT.fullmatch(words[0]):
            del words[0]
        if words and (prompt or words[0].removeprefix(".venv/bin/") in _BARE):
            yield words[: words.index("|")] if "|" in words else words


def _shown(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page: program and arguments; what `kubectl exec` runs is one of its own."""
    found = []
    for words in _commands(page.read_text("utf-8")):
        found.append((Path(words[0]).name, words[1:]))
        if "--" in words[1:-1]:
            inner = words[words.index("--", 1) + 1 :]
            found.append((Path(inner[0]).name, inner[1:]))
    return found


def _parsed(command: click.Command, words: list[str], context: click.Context | None = None) -> None:
    """Parse a command line as click does, without running it; raises UsageError for what does not exist."""
    context = click.Context(command, parent=context, info_name=command.name)
    _, rest, _ = command.make_parser(context).parse_args(words)
    if isinstance(command, click.Group) and rest:
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None, name
        _parsed(inner, rest, context)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_a_page_is_short_and_its_sentences_are(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("\n") <= _LONGER.get(page.name, _LONGEST_PAGE)
    prose = re.sub(r"```.*?```|`[^`]*`", "x", text, flags=re.DOTALL)
    prose = "\n".join(line for line in prose.split("\n") if not line.startswith(("|", "#", "    ")))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", re.sub(r"\]\([^)]*\)", "]", prose))
    sentences = [each for one in paragraphs for each in re.split(r"(?<=[.!?])\s+", one) if each.strip()]
    assert sum(len(each.split()) for each in sentences) <= _LONGEST_SENTENCE * len(sentences)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_commands_of_the_project_exist_with_their_options(page: Path) -> None:
    for program, words in _shown(page):
        if program == "nodeagent":
            _parsed(nodeagent, words)
        elif program == "make":
            assert {word for word in words if "=" not in word} <= _TARGETS, words
        elif program == "python":
            assert words[0] == "-m", words
            assert find_spec(words[1]), words


@pytest.mark.parametrize("page", _PAGES[1:], ids=lambda page: page.name)
def test_a_page_names_the_programs_whose_commands_no_test_runs(page: Path) -> None:
    notes = _NOTE.findall(" ".join(page.read_text("utf-8").split()))
    noted = {name for note in notes for name in re.findall(r"`(\w+)`", note)}
    assert noted == {program for program, _ in _shown(page)} - _CHECKED


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError, match="No such command"):
        _parsed(nodeagent, ["stauts"])
    with pytest.raises(click.UsageError, match="No such option"):
        _parsed(nodeagent, ["doctor", "--pul", "image"])
