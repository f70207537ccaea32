from nodeagent.sources.kubernetes.reflector import Store
from nodeagent.sources.kubernetes.resources import Item

A, B = ("default", "a"), ("default", "b")


def held(**items: Item) -> Store:
    store = Store()
    store.replace({("default", name): item for name, item in items.items()})
    return store


def test_older_and_repeated_events_change_nothing() -> None:
    store = held(a=Item(5, "new"))
    assert not store.apply(A, 4, Item(4, "old"))
    assert not store.apply(A, 5, Item(5, "new"))
    assert not store.apply(A, 4, None)
    assert store.values() == ("new",)


def test_versions_are_compared_as_numbers() -> None:
    assert held(a=Item(9, "old")).apply(A, 10, Item(10, "new"))


def test_an_object_that_nodeagent_does_not_use_is_held_without_a_change() -> None:
    store = held(a=Item(5, "balanced"))
    assert store.apply(A, 7, Item(7))
    assert not store.apply(A, 6, Item(6, "balanced"))
    assert not len(store)
    assert not store.apply(B, 8, Item(8))


def test_what_is_shown_stays_the_same_until_a_value_changes() -> None:
    """A caller that remembers the result for the values need not compare them."""
    store = held(a=Item(6, ["a"]), b=Item(5, ["b"]))
    before = store.values()
    assert before == (["a"], ["b"])
    store.apply(A, 7, Item(7, ["a"]))
    store.replace({A: Item(9, ["a"]), B: Item(8, ["b"])})
    assert store.values() is before
    store.apply(A, 10, Item(10, ["c"]))
    assert store.values() == (["c"], ["b"])
    assert store.values()[1] is before[1]
    store.apply(B, 11, None)
    assert store.values() == (["c"],)
    assert len(store) == 1
