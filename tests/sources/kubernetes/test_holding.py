from nodeagent.model.objects import Unreadable
from nodeagent.sources.kubernetes.resources import Item
from nodeagent.sources.kubernetes.store import Holding

A, B = ("default", "a"), ("default", "b")


def held(**items: Item) -> Holding:
    holding = Holding()
    holding.replace({("default", name): item for name, item in items.items()})
    return holding


def test_the_first_list_is_news_even_if_it_is_empty() -> None:
    holding = Holding()
    assert not holding.synced
    assert holding.replace({})
    assert holding.synced
    assert not holding.replace({})


def test_only_a_change_of_value_is_news() -> None:
    holding = held(a=Item(5, "one"))
    assert not holding.put(A, Item(6, "one"))
    assert holding.put(A, Item(7, "two"))
    assert not holding.replace({A: Item(9, "two")})
    assert holding.replace({A: Item(9, "two"), B: Item(8, "three")})


def test_older_and_repeated_events_change_nothing() -> None:
    holding = held(a=Item(5, "new"))
    assert not holding.put(A, Item(4, "old"))
    assert not holding.put(A, Item(5, "same version"))
    assert not holding.remove(A, 4)
    assert holding.items() == (Item(5, "new"),)


def test_versions_are_compared_as_numbers() -> None:
    assert held(a=Item(9, "old")).put(A, Item(10, "new"))


def test_a_late_event_does_not_bring_back_what_was_deleted() -> None:
    holding = held(a=Item(5, "here"))
    assert holding.remove(A, 7)
    assert not holding.remove(A, 7)
    assert not holding.put(A, Item(6, "before its deletion"))
    assert holding.items() == ()
    assert holding.put(A, Item(8, "created anew"))
    assert not holding.remove(A, 7)


def test_what_is_none_of_ours_is_held_without_being_news() -> None:
    holding = held(a=Item(5, "balanced"))
    assert holding.put(A, Item(7))
    assert not holding.put(A, Item(6, "balanced"))
    assert holding.counts() == (0, 0)
    assert not holding.put(B, Item(8))


def test_what_becomes_unreadable_is_news() -> None:
    holding = held(a=Item(5, "one"))
    assert holding.put(A, Item(6, unreadable=Unreadable("Service default/a", "spec: no object")))
    assert holding.counts() == (0, 1)
