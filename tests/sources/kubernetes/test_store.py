from nodeagent.sources.kubernetes.reflector import Store

A, B = ("default", "a"), ("default", "b")


def test_what_is_shown_stays_the_same_until_a_value_changes() -> None:
    """A caller that remembers the result for the values need not compare them."""
    store = Store()
    store.replace({A: ["a"], B: ["b"]})
    before = store.values()
    assert before == (["a"], ["b"])
    assert not store.apply(A, ["a"])
    assert not store.apply(("default", "unused"), None)
    assert not store.replace({A: ["a"], B: ["b"]})
    assert store.values() is before
    assert store.apply(A, ["c"])
    assert store.values() == (["c"], ["b"])
    assert store.values()[1] is before[1]
    assert store.apply(B, None)
    assert store.values() == (["c"],)
    assert len(store) == 1
