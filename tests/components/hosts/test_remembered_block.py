"""A component that remembers its block changes a file as one that begins: whatever was written before."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.components.hosts import block
from nodeagent.components.hosts import component as hosts
from nodeagent.model.desired import Desired
from tests.components.hosts.samples import USER, KeptHosts, hosts_file, line, lines, make

_ADDRESSES = ("169.254.66.2", "169.254.66.3", "fd68:6169:7270::2")
_NAMES = [f"host{number}.example.com" for number in range(12)]

blocks = st.lists(
    st.sets(st.tuples(st.sampled_from(_ADDRESSES), st.sampled_from(_NAMES))), min_size=2, max_size=6
)
_BOTH = {("169.254.66.2", "host1.example.com"), ("fd68:6169:7270::2", "host1.example.com")}


@given(blocks, st.sampled_from([1, 100]), st.integers(0, 6))
@example([_BOTH, {("169.254.66.2", "host1.example.com")}, set()], 100, 9)
@settings(deadline=None)
def test_the_change_is_that_of_a_component_that_begins(
    wanted: list[set[tuple[str, str]]], few: int, edited: int
) -> None:
    """In bytes and in names, few or many; also after another program edited the file."""
    kept = block._FEW  # noqa: SLF001 - so that few names are many
    with TemporaryDirectory() as directory:
        path = hosts_file(Path(directory))
        warm = KeptHosts(path)
        try:
            block._FEW = few  # noqa: SLF001
            for number, pairs in enumerate(wanted):
                if number == edited:
                    path.write_bytes(USER + path.read_bytes() + b"# edited\n")
                desired = Desired(hosts=tuple(line(*pair) for pair in sorted(pairs)))
                change = warm.diff(warm.read(), desired)
                fresh = KeptHosts(path)
                assert change.detail == fresh.diff(fresh.read(), desired).detail
                left = change.shrink.apply()
                assert left == KeptHosts(path).read()
                assert not warm.diff(left, desired)
        finally:
            block._FEW = kept  # noqa: SLF001


def test_what_a_pass_wrote_is_not_taken_apart_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when names are added, nor when they are removed or moved: a pass costs what changed."""

    def taken_apart(_: bytes) -> Mapping[str, object]:
        raise AssertionError

    subject = KeptHosts(hosts_file(tmp_path))
    make(subject, lines(50))
    monkeypatch.setattr(hosts, "names_and_addresses", taken_apart)
    for wanted in (lines(51), lines(49), lines(49, last_byte=3), lines(0), lines(2)):
        make(subject, wanted)
