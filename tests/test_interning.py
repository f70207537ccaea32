"""Equal values become one object, and the values of long ago are let go of."""

import weakref

from nodeagent.typed_values import intern


def test_equal_values_are_one_object() -> None:
    first, second = frozenset({"a", "b"}), frozenset({"b", "a"})
    assert first is not second
    assert intern(first) is intern(second)
    assert intern(second) == second


def test_values_of_two_types_are_not_one() -> None:
    """`True` equals `1`."""
    assert intern(1) is not intern(True)  # noqa: FBT003 - the value is the point


def test_a_value_of_long_ago_is_let_go_of() -> None:
    """Or an agent of many months would hold every hostname that ever was."""

    class Value:
        """A weak reference to it shows whether anything holds it."""

    value = Value()
    gone = weakref.ref(intern(value))
    del value
    for number in range(10_000):
        intern(f"another {number}")
    assert gone() is None
