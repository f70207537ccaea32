"""Differences of sorted rows: known without a comparison, and right after any changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.plan.incremental import SortedRows, difference

Row = tuple[int, int]

_CHANGES = st.lists(
    st.one_of(st.none(), st.tuples(st.integers(0, 60), st.lists(st.integers(0, 2), max_size=2))), max_size=40
)


def _rows(count: int) -> SortedRows[int, Row]:
    rows: SortedRows[int, Row] = SortedRows()
    return rows.update({key: [(key, 0)] for key in range(count)})


def _first(row: Row) -> int:
    return row[0]


@given(st.integers(0, 60), _CHANGES)
def test_the_differences_lead_from_each_look_to_the_next(
    count: int, changes: list[tuple[int, list[int]] | None]
) -> None:
    """None is a look at the rows; between two looks, a key may change several times."""
    rows = _rows(count)
    before = rows.rows()
    for change in (*changes, None):
        if change is not None:
            key, values = change
            rows.update({key: [(key, value) for value in values]})
            continue
        after = rows.rows()
        removed, added = difference(before, after, _first)
        assert Counter(removed) <= Counter(before)
        assert Counter(before) - Counter(removed) + Counter(added) == Counter(after)
        assert [*after] == sorted(after, key=_first)
        before = after


def test_only_what_changed_is_a_difference() -> None:
    """Without a comparison, which also reports what is next to a change."""
    rows = _rows(100)
    before = rows.rows()
    rows.update({50: [(50, 1)]})
    rows.update({60: [(60, 1)]})
    rows.update({60: []})
    after = rows.rows()
    assert difference(before, after, _first) == ([(50, 0), (60, 0)], [(50, 1)])


def test_rows_that_were_looked_at_in_between_are_compared() -> None:
    """The differences are those from the rows returned last."""
    rows = _rows(100)
    before = rows.rows()
    rows.update({20: [(20, 1)]})
    rows.rows()
    rows.update({50: []})
    removed, added = difference(before, rows.rows(), _first)
    assert {(20, 0), (50, 0)} <= {*removed}
    assert (20, 1) in added
