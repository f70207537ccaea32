from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.sources.kubernetes.errors import TooLargeError
from nodeagent.sources.kubernetes.listing import LONGEST_LINE, lines

LINES = st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line), max_size=8)


@given(whole=LINES, rest=st.sampled_from([b"", b"half"]), cuts=st.lists(st.integers(0, 200), max_size=20))
def test_lines_come_whole_however_the_bytes_are_cut(whole: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in whole) + rest
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    assert list(lines(data[start:end] for start, end in pairwise(edges))) == whole


def test_a_line_is_given_as_soon_as_its_end_is_there() -> None:
    pieces = iter([b'{"a":', b'1}\n{"b"', b":2}", b"\n\n"])
    found = lines(pieces)
    assert next(found) == b'{"a":1}'
    assert next(pieces) == b":2}"


def test_a_line_without_end_is_given_up() -> None:
    piece = b"x" * 65536
    found = lines([piece * 2 + b"\n", *[piece] * (LONGEST_LINE // len(piece) + 1)])
    assert len(next(found)) == 2 * len(piece)
    with pytest.raises(TooLargeError):
        next(found)
