"""Equal values become one object, and the values of long ago are let go of."""

import weakref

from nodeagent.sharing import shared


def test_equal_values_are_one_object() -> None:
    first, second = frozenset({"a", "b"}), frozenset({"b", "a"})
    assert first is not second
    assert shared(first) is shared(second)
    assert shared(second) == second


def test_values_of_two_types_are_not_one() -> None:
    """`True` equals `1`."""
    assert shared(1) is not shared(True)  # noqa: FBT003 - the value is the point


def test_a_value_of_long_ago_is_let_go_of() -> None:
    """Or an agent of many months would hold every hostname that ever was."""

    class Value:
        """A weak reference to it shows whether anything holds it."""

    value = Value()
    gone = weakref.ref(shared(value))
    del value
    for number in range(10_000):
        shared(f"another {number}")
    assert gone() is None
