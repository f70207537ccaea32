from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.sources.kubernetes.errors import TooLargeError
from nodeagent.sources.kubernetes.transport import LONGEST_LINE, LineSplitter

LINES = st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line), max_size=8)


@given(lines=LINES, rest=st.sampled_from([b"", b"half"]), cuts=st.lists(st.integers(0, 200), max_size=20))
def test_lines_come_whole_however_the_bytes_are_cut(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines) + rest
    splitter = LineSplitter()
    seen: list[bytes] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in pairwise(edges):
        seen += splitter.feed(data[start:end])
    assert seen == lines


def test_a_line_is_given_as_soon_as_its_end_is_there() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.feed(b'1}\n{"b"') == [b'{"a":1}']
    assert splitter.feed(b":2}") == []
    assert splitter.feed(b"\n\n") == [b'{"b":2}']


def test_a_line_without_end_is_given_up() -> None:
    splitter = LineSplitter()
    piece = b"x" * 65536
    whole = splitter.feed(piece * 2 + b"\n")
    assert len(whole[0]) == 2 * len(piece)
    for _ in range(LONGEST_LINE // len(piece)):
        assert splitter.feed(piece) == []
    with pytest.raises(TooLargeError):
        splitter.feed(piece)
