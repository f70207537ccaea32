"""Whatever any object holds, nothing that is shown to a person holds a letter that could steer a terminal."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.agent.comparison import Comparison, ListenerStatus
from nodeagent.agent.convergence import NodePass
from nodeagent.cli.doctor import DoctorDocument, doctor_lines
from nodeagent.cli.report import convergence_lines, coredns_lines, encode, report, report_lines
from nodeagent.cli.terminal import Styled, block, show, terminal_text
from nodeagent.components.node import Applied
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.coredns.editing import Edit, Edits
from nodeagent.doctor.findings import Code, Finding, summarize
from nodeagent.errors import cut_to_bytes, printable
from nodeagent.model.facts import Facts
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from tests.apiserver.objects import objects_under
from tests.situations.situation import SITUATIONS, situations

_HOSTILE = ("\x1b[31m", "\n  served   forged: all is well", "\u202e", "\x9b2J", "\u2066\u200b", "\0", "\x7f")
hostile = st.sampled_from(_HOSTILE) | st.text(max_size=12)
text_of_utf8 = st.sampled_from(_HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
Document = dict[str, Any]


@cache
def _documents(cluster: str) -> tuple[Document, ...]:
    return tuple(objects_under(SITUATIONS / cluster / "manifests"))


def _hostile_in(value: Any, chance: Random) -> Any:  # noqa: ANN401 - any JSON value
    """The value with some of its texts, and of its keys, replaced or grown by hostile ones."""
    if isinstance(value, dict):
        found = {key: _hostile_in(item, chance) for key, item in value.items() if key != "kind"}
        kept = {"kind": value["kind"]} if "kind" in value else {}
        return kept | {key if chance.random() < 0.95 else _odd(key, chance): found[key] for key in found}
    if isinstance(value, list):
        return [_hostile_in(item, chance) for item in value]
    return _odd(value, chance) if isinstance(value, str) and chance.random() < 0.15 else value


def _odd(text: str, chance: Random) -> str:
    return chance.choice(["", text]) + chance.choice([*_HOSTILE, chr(chance.randrange(0x20, 0xD800))])


def _assert_harmless(text: str) -> None:
    # Colors are nodeagent's: click's own codes, and no others, are removed.
    shown = click.unstyle(text)
    assert [letter for letter in shown if not (letter.isprintable() or letter == "\n")] == []
    assert not any(line.startswith("  served   forged") for line in shown.split("\n"))


@given(
    st.sampled_from([path.name for path in situations() if path.name != "hundreds-of-tenants"]),
    st.integers(0, 2**32),
    text_of_utf8,
)
def test_whatever_any_object_holds(
    tmp_path_factory: pytest.TempPathFactory, cluster: str, seed: int, said: str
) -> None:
    directory = tmp_path_factory.mktemp("manifests")
    chance = Random(seed)  # noqa: S311 - which texts are hostile
    items = [_hostile_in(found, chance) for found in _documents(cluster)]
    # YAML has dates; the API server writes them as text.
    everything = {"kind": "List", "apiVersion": "v1", "items": items}
    (directory / "all.json").write_text(json.dumps(everything, default=str))
    config_file = SITUATIONS / cluster / "nodeagent.yaml"
    config = read_config(config_file) if config_file.exists() else Config()
    desired = plan(read_manifests(directory, "node1"), Facts(node_name="node1"), config)
    comparison = Comparison({}, {"hosts": said}, None, (said,))
    standing = {
        one.bind: ListenerStatus(str(one.bind), answers=False, redirected=(), backend=said)
        for one in desired.listeners
    }
    done = NodePass(desired, changes=[("dnat", Applied(f"+ {said}"))], errors={"relay": said})
    texts = [
        report_lines(report("Plan", said, desired, comparison), said),
        report_lines(report("Status", said, desired, comparison, standing)),
        convergence_lines(said, done, said, said),
        coredns_lines(
            replace(desired, remarks=(said,)),
            Edits("", (Edit(said, said, None, said),), desired.names, (said,)),
        ),
    ]
    for text in texts:
        _assert_harmless(terminal_text(text))
    found = json.loads(encode(report("Plan", "node1", desired, comparison)))
    assert [each["reason"] for each in found["names"]] == [each.reason for each in desired.names]
    balancers = [tuple(each["remarks"]) for each in found["loadBalancers"]]
    assert balancers == [each.remarks for each in desired.load_balancers]


@given(st.lists(st.tuples(st.sampled_from(Code), hostile, hostile), max_size=4), text_of_utf8)
def test_whatever_the_doctor_saw(seen: list[tuple[Code, str, str]], said: str) -> None:
    findings = [Finding.of(code, one, other, (one, other), (other, one)) for code, one, other in seen]
    document = DoctorDocument("1", "Doctor", "node1", True, *summarize(said, findings), findings)  # noqa: FBT003 - on the node
    _assert_harmless(text := terminal_text(doctor_lines(document)))
    assert not seen or text.rstrip().endswith("docs/doctor-codes.md explains each [code]")
    assert json.loads(encode(document))["sentence"]


@given(st.lists(hostile | hostile.map(lambda text: Styled(text, "red", bold=True))))
def test_every_line_is_one(lines: list[str | Styled]) -> None:
    text = terminal_text(lines)
    _assert_harmless(text)
    assert text.count("\n") == len(lines)


@given(st.text())
def test_a_block_loses_no_line(text: str) -> None:
    assert len(list(block(text))) == (text.removesuffix("\n").count("\n") + 1 if text else 0)


@given(st.text())
@example("\ud800")
def test_what_is_printable_stays(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert shown == text or not text.isprintable()


@given(st.text(), st.integers(3, 60))
def test_a_cut_text_fits_and_says_so(text: str, most: int) -> None:
    shown = cut_to_bytes(text, most)
    assert len(shown.encode()) <= most
    assert shown.endswith("...") or shown == text.encode("utf-8", "backslashreplace").decode()


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    name = b"\xff\x1b[31m.yaml".decode(sys.getfilesystemencoding(), "surrogateescape")
    (directory / name).write_text("a: [b", encoding="ascii")
    desired = plan(read_manifests(directory, "node1"), Facts(node_name="node1"), Config())
    comparison = Comparison({}, {})
    assert r"\udcff\x1b[31m.yaml" in terminal_text(report_lines(report("Plan", "node1", desired, comparison)))
    (entry,) = json.loads(encode(report("Plan", "node1", desired, comparison)))["unreadable"]
    assert r"\udcff" in entry["where"]


_WORDS = st.lists(st.text("ab-$':", min_size=1, max_size=20), min_size=1, max_size=30)


@given(_WORDS, st.integers(0, 40), st.sampled_from(["", "- ", "+ ", "served   "]), st.integers(60, 100))
def test_a_long_line_continues_within_the_width_and_loses_no_word(
    words: list[str], indent: int, mark: str, width: int
) -> None:
    line = " " * indent + mark + " ".join(words)
    rows = terminal_text([line], width).splitlines()
    assert all(len(row) <= width for row in rows)
    assert " ".join(rows).split() == line.split()
    coloured = terminal_text([(" " * indent, Styled(mark, "green"), Styled(" ".join(words), "red"))], width)
    assert click.unstyle(coloured).splitlines() == rows


def test_a_long_command_is_still_the_same_to_a_shell() -> None:
    command = f"kubectl patch service web -p '{{\"status\": {{}}}}' {'--option value ' * 9}"
    rows = terminal_text([f"    $ {command}"], 60).splitlines()
    assert len(rows) > 2
    assert max(map(len, rows)) <= 60
    shown = "\n".join(rows).strip().removeprefix("$ ")
    told = subprocess.run(["sh", "-c", f"printf '%s|' {shown}"], capture_output=True, text=True, check=True)
    assert told.stdout.split("|")[:-1] == shlex.split(command)


def test_a_line_of_a_file_is_shown_as_it_is() -> None:
    line = f"+ {'word ' * 30}end"
    shown = terminal_text([("hosts  ", Styled(line, whole=True)), line], 60).splitlines()
    assert shown[0] == f"hosts  {line}"
    assert max(map(len, shown[1:])) <= 60


@pytest.mark.parametrize(("columns", "rows"), [("", 2), ("80", 2), ("101", 1), ("9999", 1)])
def test_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, rows: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    show([f"served   web/site: {'because ' * 10}so"])
    assert capsys.readouterr().out.count("\n") == rows
