from collections.abc import Sequence
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.components.hosts.block import BEGIN, END, parse
from nodeagent.components.hosts.file import torn
from nodeagent.model.desired import HostsLine
from tests.components.hosts.samples import ONE, OWN, USER, line, lines, remove, render

unhurried = settings(deadline=None)  # a busy machine is no counterexample
ADDRESSES = ["169.254.66.2", "169.254.66.200", "fd68:6169:7270::1", "10.96.7.7"]
NAMES = ["a.example.com", "b.example.com", "c", "x--1.y"]
PIECES = [
    *(f"{address}\t{name}".encode() for address in ADDRESSES[:2] for name in NAMES[:2]),
    b"127.0.0.1 localhost",
    b"# caf\xe9",
    b"",
    b"\r",
    b"10.1.1.1\tdb # Added by hairpin-proxy",
    b"169.254.6",
    b"# EN",
]
MARKERS = [BEGIN, END, BEGIN + b" (no newline at byte 3)", BEGIN + b" (file was absent)"]

wanted_lines = st.lists(st.builds(line, st.sampled_from(ADDRESSES), st.sampled_from(NAMES)), max_size=6)
user_line = st.one_of(st.sampled_from(PIECES), st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")))
line_end = st.sampled_from([b"\n", b"\n", b"\r\n"])


def _joined(pieces: Sequence[tuple[bytes, bytes]], cut: int) -> bytes:
    content = b"".join(text + end for text, end in pieces)
    return content[: len(content) - cut] if cut else content


def _contents(text: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(_joined, st.lists(st.tuples(text, line_end), max_size=8), st.integers(0, 2))


users = _contents(user_line).filter(lambda content: parse(content, OWN).block is None)
damaged = _contents(st.one_of(user_line, st.sampled_from(MARKERS)))


@unhurried
@given(users, wanted_lines)
@example(b"", [*ONE])
@example(USER, [*ONE])
@example(b"127.0.0.1 localhost", [*ONE])
@example(b"127.0.0.1 localhost\r\n::1 localhost\r\n", [*ONE])
@example(b"127.0.0.1 localhost\r\n::1 localhost", [*ONE])
@example(b"127.0.0.1 localhost\r\n::1 localhost\n", [*ONE])
@example(b"127.0.0.1 localhost\r", [*ONE])
@example(b"\n\n\n", [*ONE])
@example(b"\0\xff\xfe\x80\n\x0b\x0c\x1c\x85", [*ONE])
@example(b"# BEGIN nodeagent\n# END nodeagent, really\n", [*ONE])
@example(b"169.254.66.2\told.example.com\n", [*ONE])
def test_the_users_bytes_come_back_exactly(user: bytes, wanted: list[HostsLine]) -> None:
    written = render(user, wanted)
    assert parse(written, OWN).user == user
    assert parse(written, OWN).problems == ()
    assert remove(render(parse(written, OWN).user, lines(3))) == user
    assert render(user, ()) == user


@unhurried
@given(damaged, wanted_lines)
def test_writing_again_changes_nothing(content: bytes, wanted: list[HostsLine]) -> None:
    first = parse(content, OWN)
    once = render(first.user, wanted, absent=first.absent)
    again = parse(once, OWN)
    assert again.user == first.user
    assert render(again.user, wanted, absent=again.absent) == once


@unhurried
@given(damaged)
def test_no_line_of_the_users_is_lost_or_reordered_by_damaged_markers(content: bytes) -> None:
    """Outside of whole blocks only markers and lines of exactly our own form may go."""
    # CRs at a line's end are not compared: one may be part of the newline that the BEGIN line notes as added.
    remaining = iter([text.rstrip(b"\r") for text in remove(content).split(b"\n")])
    for text in _outside_whole_blocks(content):
        cut_off = content.endswith(text) and _could_be_cut_off(text)
        if text.rstrip(b"\r") and not OWN.whole(text) and not cut_off:
            # `in` moves the iterator on: the order counts.
            assert text.rstrip(b"\r") in remaining, (text, content)


def _outside_whole_blocks(content: bytes) -> list[bytes]:
    outside: list[bytes] = []
    opened: int | None = None
    for text in content.split(b"\n"):
        if text.startswith(BEGIN):
            opened = len(outside)
        elif text.rstrip() != END:
            outside.append(text)
        elif opened is not None:
            del outside[opened:]
            opened = None
    return outside


def _could_be_cut_off(text: bytes) -> bool:
    return OWN.torn(text) or END.startswith(text) or BEGIN.startswith(text)


edits: st.SearchStrategy[tuple[str, list[HostsLine] | bytes]] = st.one_of(
    st.tuples(st.just("apply"), wanted_lines),
    st.tuples(st.just("cleanup"), st.just([])),
    st.tuples(st.just("above"), st.sampled_from([b"10.1.1.1 above\n", b"# \xff\r\n", b"\n"])),
    st.tuples(st.just("below"), st.sampled_from([b"10.1.1.1 below\n", b"below, no newline", b"\r\n"])),
)


@unhurried
@given(users, st.lists(edits, max_size=8))
def test_user_edits_around_the_block_survive_any_sequence_of_apply_and_cleanup(
    user: bytes, steps: list[tuple[str, list[HostsLine] | bytes]]
) -> None:
    """The model next to it is what the user would have without us.

    The one liberty: if the user's last line lacks its newline while a block exists, the newline we wrote
    is there when the user edits, and then is the user's.
    """
    content, model = user, user
    for kind, value in steps:
        if isinstance(value, list):
            content = render(parse(content, OWN).user, value)
            continue
        block_stands = BEGIN in content
        if block_stands and model and not model.endswith(b"\n"):
            begin_line = content[content.index(BEGIN) :].partition(b"\n")[0]
            model += b"\r\n" if begin_line.endswith(b"\r") else b"\n"
        if kind == "above":
            content, model = value + content, value + model
        else:
            content, model = content + value, model + value
        content = render(parse(content, OWN).user, [line("169.254.66.2", "a")] if block_stands else [])
    assert remove(content) == model


def test_torn_is_what_its_definition_says() -> None:
    contents = [bytes(each) for size in range(5) for each in product(b"ab", repeat=size)]
    for old, new in product(contents, repeat=2):
        states = {new[:k] + old[k:] for k in range(len(new) + 1)} | {new}
        assert {current for current in contents if torn(old, new, current)} == states
