"""What is said of a bad configuration: file, line, key and what to write instead; all of it at once."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.config.reading import parse_config, read_config
from nodeagent.errors import ConfigError
from nodeagent.yaml_loader import compose
from tests.cases import cases_of

FILE = "nodeagent.yaml"
TEXTS: dict[str, Any] = cases_of(__file__, "texts.yaml")


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, FILE)
    return str(caught.value).splitlines()


# Generated, since each of these is long.
_LONG = [
    ("relay: {maxConnections: " + "1:" * 100_000 + "1}", "1: relay.maxConnections: must be a whole number"),
    ("relay: " + "[" * 100_000, "1: not YAML: nested more than 100 deep"),
]


@pytest.mark.parametrize(("text", "complaint"), [*TEXTS["texts"], *_LONG])
def test_an_error_has_the_line_the_key_and_what_to_write(text: str, complaint: str) -> None:
    (line,) = complaints(text)
    assert line.startswith(f"{FILE}:{complaint}")


def _of(kind: str, form: str) -> list[tuple[str, str, str]]:
    cases: dict[str, list[tuple[str, str]]] = TEXTS[kind]
    return [(option, form.format(text), problem) for option, rows in cases.items() for text, problem in rows]


@pytest.mark.parametrize(("option", "text", "problem"), [*_of("values", "{}"), *_of("entries", "\n    - {}")])
def test_a_bad_value_or_entry_of_a_list_is_reported_with_its_key_and_line(
    option: str, text: str, problem: str
) -> None:
    section, _, key = option.partition(".")
    (complaint,) = complaints(f"{section}:\n  {key}: {text}\n")
    line = 3 if text.startswith("\n") else 2
    assert complaint.startswith(f"{FILE}:{line}: {option}")
    assert problem in complaint


def test_aliases_that_repeat_much_are_not_supported() -> None:
    """Nine lines of ten aliases each are a gigabyte; a few equal lists are nothing."""
    assert parse_config("hosts:\n  allow: &few [example.com]\n  exclude: *few\n", FILE).hosts.exclude
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 10)}]" for one in range(1, 9)]
    text = "\n".join([*lines, "hosts: {file: *a8}"])
    assert complaints(text) == [
        f"{FILE}:3: not YAML: aliases (*) that repeat much, or themselves, are not supported: write them out"
    ]


def test_a_document_may_repeat_a_thousand_nodes_and_be_nested_a_hundred_deep() -> None:
    for text, most in (("[&it x{0}]", 1_000), ("{1}{2}", 100)):
        for size in (most, most + 1):
            document = text.format(", *it" * size, "[" * size, "]" * size)
            with nullcontext() if size == most else pytest.raises(yaml.MarkedYAMLError):
                compose(document)


@pytest.mark.parametrize("option", ["hosts.file", "relay.kind", "relay.ipv4", "dnat.podCIDRs", "hosts.x"])
@pytest.mark.parametrize("value", ["x" * 10_000, f"[{'x, ' * 3_000}]", f"[{'x' * 10_000}]"])
def test_an_error_shows_the_beginning_of_a_long_value(option: str, value: str) -> None:
    section, _, key = option.partition(".")
    for text in (f"{section}: {{{key}: {value}}}", f"{section}: {{{value.strip('[]')}: 1}}"):
        assert all(len(complaint) < 400 for complaint in complaints(text)), option


@pytest.mark.parametrize(
    "text", ["hosts: *{}", "hosts: !{} x", "hosts: &{} *x", "%{}\n---\na: 1", "hosts: {{file: ! {}", "'{}"]
)
def test_an_error_shows_the_beginning_of_what_the_parser_says(text: str) -> None:
    assert all(len(complaint) < 400 for complaint in complaints(text.format("x" * 100_000)))


def test_a_file_that_cant_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    """A directory if a ConfigMap is mounted one level too high."""
    with pytest.raises(ConfigError, match=r"gone\.yaml: can't be read: .*No such file"):
        read_config(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match=r"can't be read: .*Is a directory"):
        read_config(tmp_path)
    file = tmp_path / "latin1.yaml"
    file.write_bytes("# caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin1\.yaml: can't be read: not a text in UTF-8"):
        read_config(file)
