"""Types are decoded in many threads at once; equal values become one object, but for those of long ago."""

import subprocess
import sys
import weakref
from pathlib import Path

from nodeagent.typed_values import intern

_THREADS_MEET_NEW_TYPES = """
import sys, threading
import msgspec
from nodeagent.typed_values import from_json, from_plain

sys.setswitchinterval(1e-6)
text = msgspec.json.encode({f"a{number}": {"f1": 1} for number in range(10)})
plain = msgspec.json.decode(text)
here = {"__module__": __name__}
for turn in range(40):
    fields = [(f"f{number}", "int | None", None) for number in range(8)]
    inner = [msgspec.defstruct(f"Inner{turn}x{number}", fields, namespace=here) for number in range(10)]
    outer = msgspec.defstruct(f"Outer{turn}", [(f"a{number}", inner[number]) for number in range(10)])
    together = threading.Barrier(6)

    def decode(number):
        together.wait()
        found = from_json(text, outer) if number % 2 else from_plain(plain, outer)
        assert found.a9.f1 == 1

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all decoded")
"""


def test_threads_that_meet_a_new_type_together_decode_it() -> None:
    """By msgspec alone, the process crashes here, so that this needs one of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _THREADS_MEET_NEW_TYPES],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "all decoded\n", "")


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
